// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Fetches the samples of claimed rows and writes each at its place in the slot. The same code runs
// in a worker and, with num_workers = 0, in the program's own process.

#include <stoker/detail/core.h>

#include <atomic>
#include <exception>
#include <optional>
#include <utility>

#include "randomness.h"
#include "row_writer.h"
#include "slot.h"

namespace stoker::detail {

class Filler {
 public:
  // `worker_id` is absent in the program's own process.
  Filler(Fetcher& fetcher, std::optional<int64_t> worker_id, int64_t num_workers)
      : fetcher_(fetcher), worker_id_(worker_id), num_workers_(num_workers) {}

  // Where the program's own randomness begins and ends to be set aside.
  void enter() { random_.enter(); }
  void leave() { random_.leave(); }

  // Fetches these rows, which the caller has claimed. `current` tells which one is being worked
  // on. A sample that throws fails its row, and the batch: rows that nobody has claimed are then
  // not run. Returns how many rows the caller must count as finished.
  uint32_t fill(Slot slot, RowRange rows, std::atomic<uint32_t>& current);

  // The exception of the last row that failed, for a caller in the program's own process.
  std::exception_ptr take_error() { return std::exchange(error_, nullptr); }

 private:
  bool fill_one_by_one(Slot slot, RowRange rows, std::atomic<uint32_t>& current);
  bool fill_whole(Slot slot, RowRange rows);
  void prepare(Slot slot, uint32_t row);
  void store(Slot slot, uint32_t row, const FlatSample& sample);
  void fail(Slot slot, uint32_t row, std::optional<size_t> index);
  RowWriter* writer(Slot slot, const FlatSample& sample);
  std::optional<uint64_t> fix_layout(Slot slot, const FlatSample& sample);
  LayoutState write_layout(Slot slot, const FlatSample& sample);
  void spill(Slot slot, uint32_t row, const FlatSample& sample);

  Fetcher& fetcher_;
  std::optional<int64_t> worker_id_;
  int64_t num_workers_;
  SampleRandomness random_;
  std::optional<RowWriter> writer_;  // of the batch being filled, once its layout is fixed
  std::exception_ptr error_;
};

}  // namespace stoker::detail
