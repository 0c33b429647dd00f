// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The memory that a loader's processes share: one sparse stretch of address space, whose pages
// exist once touched. It has no name, takes nothing from /dev/shm, and no descriptor stays open.

#include <cstddef>
#include <cstdint>
#include <memory>

namespace stoker::detail {

class Region {
 public:
  // Maps up to `want` bytes: less where the address space is limited, but never under `least`.
  // Throws std::system_error.
  Region(uint64_t want, uint64_t least);
  ~Region();

  // Gives the pages of whole pages back: they read as zeros then, in all processes.
  void drop(std::byte* from, uint64_t bytes) const;

  std::byte* data() const;
  uint64_t size() const;

 private:
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
};

}  // namespace stoker::detail
