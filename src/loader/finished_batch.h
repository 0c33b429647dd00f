// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What lies in a slot whose batch is finished, as main reads it.
//
// Workers run the dataset's code, and a program writes to its tensors: either may have written over
// what the workers wrote. So nothing there is believed. The layout is copied, and every offset,
// size and count looked at, before anything is reached through it. What the rows hold is not ours
// to judge.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memory/row_layout.h"
#include "memory/slot.h"

namespace stoker::detail {

class FinishedBatch {
 public:
  // Of so many samples, as main published it; `single`: the batch is one row. Throws
  // std::runtime_error if what the slot says of its batch is damaged.
  FinishedBatch(Slot slot, uint64_t num_samples, bool single = false);

  RowLayout layout() const { return RowLayout(copy_.data()); }
  // Of the layout's first leaf; those of each further one begin at the next multiple of 64 bytes.
  std::byte* rows() const { return rows_; }
  uint64_t num_rows() const { return num_rows_; }
  // From there to the end of the last row that has a sample.
  uint64_t rows_bytes() const { return rows_bytes_; }
  // Copies of the first so many texts whose rows those are. Throws std::runtime_error if one lies
  // elsewhere.
  std::vector<std::string> strings(const std::byte* rows, uint64_t count);
  // Of the slot, that the batch takes.
  uint64_t bytes() const;

 private:
  Slot slot_;
  uint64_t num_rows_;
  std::vector<std::byte> copy_;
  std::byte* rows_;
  uint64_t string_bytes_;  // that can still be somebody's, of all that the open end has given out
  uint64_t rows_bytes_ = 0;
  uint64_t touched_bytes_ = 0;  // of all rows that have a sample
};

}  // namespace stoker::detail
