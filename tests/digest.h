// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// One number for all bytes of many batches.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace stoker {

// FNV-1a.
class Digest {
 public:
  void add(const at::Tensor& tensor) {
    for (const int64_t size : tensor.sizes()) add_bytes(&size, sizeof size);
    const at::Tensor dense = tensor.contiguous();
    add_bytes(dense.const_data_ptr(), dense.nbytes());
  }
  uint64_t value() const { return hash_; }

 private:
  void add_bytes(const void* bytes, size_t count) {
    const auto* byte = static_cast<const uint8_t*>(bytes);
    for (size_t i = 0; i < count; ++i) hash_ = (hash_ ^ byte[i]) * 0x100000001b3;
  }
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace stoker
