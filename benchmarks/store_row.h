// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace bench {

/// Copies a row into a slot; with `streaming`, past the caches where the processor can. Which is
/// faster depends on the machine and the size, so the limit is the better of the two.
inline void store_row(void* to, const void* from, size_t bytes, bool streaming) {
#if defined(__SSE2__)
  if (streaming && reinterpret_cast<uintptr_t>(to) % sizeof(__m128i) == 0) {
    auto* target = static_cast<__m128i*>(to);
    const auto* source = static_cast<const __m128i*>(from);
    for (; bytes >= sizeof(__m128i); bytes -= sizeof(__m128i)) {
      _mm_stream_si128(target++, _mm_loadu_si128(source++));
    }
    _mm_sfence();  // such stores are not ordered by what follows
    to = target;
    from = source;
  }
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace bench
