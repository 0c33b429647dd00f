// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Fetches the samples of claimed rows and writes each at its place in the slot. The same code runs
// in a worker and, with num_workers = 0, in the program's own process.

#include <stoker/detail/core.h>

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "control.h"
#include "randomness.h"
#include "row_writer.h"
#include "slot.h"

namespace stoker::detail {

class Filler {
 public:
  // `worker_id` is absent in the program's own process.
  Filler(Fetcher& fetcher, std::optional<int64_t> worker_id, int64_t num_workers)
      : fetcher_(fetcher), worker_id_(worker_id), num_workers_(num_workers) {}

  // Once, before the first sample: lets the dataset open what each process needs for itself.
  void open();

  // Where the program's own randomness begins and ends to be set aside.
  void enter() { random_.enter(); }
  void leave() { random_.leave(); }

  // Fetches those of these rows that it can make its own, and settles them. `progress` tells which
  // one is being worked on, and if `timed`, since when. A sample that throws fails its row, and the
  // batch: rows that nobody has claimed are then not run. Returns how many rows the caller must
  // count.
  uint32_t fill(Slot slot, uint32_t generation, RowRange rows, Progress& progress);
  void set_timed() { timed_ = true; }

  Hand hand(Slot slot, uint32_t generation) const {
    return worker_id_ ? Slot::worker(generation, static_cast<uint32_t>(*worker_id_))
                      : slot.main(generation);
  }

  // The exception of the last row that failed, for a caller in the program's own process.
  std::exception_ptr take_error() { return std::exchange(error_, nullptr); }

 private:
  // A row that is this one's, and what became of it.
  struct OwnRow {
    uint32_t row;
    RowState state;
  };

  void own(Slot slot, Hand me, RowRange rows);
  bool fill_one_by_one(Slot slot, Progress& progress);
  bool fill_whole(Slot slot, Progress& progress);
  void begin(uint32_t row, Progress& progress) const;
  void prepare(Slot slot, uint32_t row);
  RowState store(Slot slot, uint32_t row, const FlatSample& sample);
  RowState fail(Slot slot, uint32_t row, std::optional<size_t> index);
  RowWriter* writer(Slot slot, const FlatSample& sample);
  std::optional<uint64_t> fix_layout(Slot slot, const FlatSample& sample);
  LayoutState write_layout(Slot slot, const FlatSample& sample);
  RowState spill(Slot slot, uint32_t row, const FlatSample& sample);

  Fetcher& fetcher_;
  std::optional<int64_t> worker_id_;
  int64_t num_workers_;
  SampleRandomness random_;
  std::optional<RowWriter> writer_;  // of the batch being filled, once its layout is fixed
  std::exception_ptr error_;
  std::vector<OwnRow> mine_;
  bool timed_ = false;
  bool opened_ = false;
};

}  // namespace stoker::detail
