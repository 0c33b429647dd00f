// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace bench {

/// Batch slots in anonymous shared memory, each `rows` samples of `width` floats and their labels:
/// as many and as large as a loader with shared memory would need. Forked children inherit them.
class SharedSlots {
 public:
  SharedSlots(int64_t slots, int64_t rows, int64_t width)
      : slots_(slots), rows_(rows), width_(width), memory_(map(bytes())) {}
  ~SharedSlots() { munmap(memory_, bytes()); }
  SharedSlots(const SharedSlots&) = delete;
  SharedSlots& operator=(const SharedSlots&) = delete;

  int64_t count() const { return slots_; }
  int64_t width() const { return width_; }
  int64_t* labels(int64_t slot) const { return static_cast<int64_t*>(memory_) + slot * rows_; }
  float* data(int64_t slot) const {
    const auto first = reinterpret_cast<float*>(static_cast<int64_t*>(memory_) + slots_ * rows_);
    return first + slot * rows_ * width_;
  }

  static void* map(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    return memory;
  }

 private:
  size_t bytes() const {
    const auto row = sizeof(int64_t) + static_cast<size_t>(width_) * sizeof(float);
    return static_cast<size_t>(slots_ * rows_) * row;
  }

  int64_t slots_;
  int64_t rows_;
  int64_t width_;
  void* memory_;
};

}  // namespace bench
