// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Puts samples where a batch is collated: in their rows if they match the layout that is fixed, or
// into the open end. The first sample of a batch to be finished says what its rows look like.
//
// Process safety: a worker only stores samples of rows that it has claimed.

#include <stoker/detail/core.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "memory/control.h"
#include "memory/row_writer.h"
#include "memory/slot.h"

namespace stoker::detail {

class RowStore {
 public:
  explicit RowStore(Fetcher& fetcher) : fetcher_(fetcher) {}

  // What follows is about this batch.
  void begin(Slot slot);

  // Takes the sample that the fetcher handed out last, and returns its row's state. A tiny one is
  // written once the next one is here, by the next call of any function: until then its bytes are
  // on their way to the cache. `progress` tells whose bytes are being read. Throws
  // std::length_error if there is no room.
  RowState store(uint32_t row, const FlatSample& sample, Progress& progress);
  void finish(Progress& progress);
  // Lets the dataset write all these rows at once, if it can.
  bool gather(uint32_t first_row, std::span<const size_t> indices);

  // Since the last call: whether a sample was overwritten by the next one, as the dataset makes
  // them in the same memory. Then those since `begin` are to be stored again, and from now on each
  // is written at once.
  bool overwrote() { return std::exchange(overwrote_, false); }

 private:
  RowWriter* writer(const FlatSample& sample);
  std::optional<uint64_t> fix_layout(const FlatSample& sample);
  LayoutState write_layout(const FlatSample& sample);
  RowState spill(uint32_t row, const FlatSample& sample);

  Fetcher& fetcher_;
  std::optional<Slot> slot_;
  std::optional<RowWriter> writer_;  // once the layout is fixed
  const FlatSample* waiting_ = nullptr;
  uint32_t waiting_row_ = 0;
  bool waits_ = true;
  bool overwrote_ = false;
};

}  // namespace stoker::detail
