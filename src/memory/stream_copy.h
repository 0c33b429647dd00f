// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace stoker::detail {

// memcpy past the caches: for rows of batches too large to be still there when somebody reads them.
// Saves reading the lines that are about to be overwritten, a third of the traffic of a copy. The
// bytes are visible to whoever acquires what the caller releases afterwards.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace stoker::detail
