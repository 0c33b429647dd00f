// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Fetches the samples of claimed rows and writes each at its place in the slot. The same code runs
// in a worker and, with num_workers = 0, in the program's own process.

#include <stoker/detail/core.h>
#include <stoker/options.h>

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "memory/control.h"
#include "memory/slot.h"
#include "worker/randomness.h"
#include "worker/row_store.h"
#include "worker/stream_reader.h"

namespace stoker::detail {

struct FillOptions {
  bool timed = false;          // tell since when a sample is being fetched
  Shard shard = Shard::kNone;  // of a stream
  uint64_t batch_size = 1;     // .. if it is shared
  OnError on_error = OnError::kRaise;
};

// What of the loader's options concerns it.
FillOptions fill_options(const DataLoaderOptions& options);

class Filler {
 public:
  // `worker_id` is absent in the program's own process.
  Filler(Fetcher& fetcher, std::optional<int64_t> worker_id, int64_t num_workers,
         FillOptions options = {});

  // Once, before the first sample: lets the dataset open what each process needs for itself.
  void open();

  // What `worker_info()` is to tell.
  WorkerInfo info(uint64_t seed) const;

  // Sets the state of the program's own generators aside, for good: a worker's.
  void enter() { random_.enter(); }
  // .. or while it lives, with num_workers = 0.
  class OwnRandomness {
   public:
    explicit OwnRandomness(Filler& filler) : random_(filler.random_) { random_.enter(); }
    ~OwnRandomness() { random_.leave(); }
    OwnRandomness(const OwnRandomness&) = delete;
    OwnRandomness& operator=(const OwnRandomness&) = delete;

   private:
    SampleRandomness& random_;
  };

  // Fetches those of these rows that it can make its own, and settles them. `progress` tells which
  // one is being worked on, and if `timed`, since when. A sample that throws fails its row, and
  // unless that is to be handled the batch: rows that nobody has claimed are then not run. Returns
  // how many rows the caller must count.
  uint32_t fill(Slot slot, uint32_t generation, RowRange rows, Progress& progress);

  Hand hand(Slot slot, uint32_t generation) const {
    return worker_id_ ? Slot::worker(generation, static_cast<uint32_t>(*worker_id_))
                      : slot.main(generation);
  }

  // Of a batch whose rows are all done, by the process that completes it: makes it one. Returns its
  // status, see collate.h.
  SlotStatus complete(Slot slot);

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
  RowState fill_row(Slot slot, uint32_t row, Progress& progress);
  const FlatSample* get(Slot slot, uint32_t row, uint32_t source, Progress& progress);
  const FlatSample* get_another(Slot slot, uint32_t row, Progress& progress);
  bool fill_whole(Slot slot, Progress& progress);
  bool fetch_whole(Slot slot, Progress& progress);
  bool fill_from_stream(Slot slot, Progress& progress);
  void open_stream(Slot slot);
  bool run(Slot slot, Progress& progress);
  void begin(uint32_t row, Progress& progress) const;
  void prepare(Slot slot, uint64_t position);
  RowState fail(Slot slot, uint32_t row, std::optional<size_t> index);
  uint64_t keep_error(Slot slot, std::optional<size_t> index, const std::exception_ptr& error);

  Fetcher& fetcher_;
  std::optional<int64_t> worker_id_;
  int64_t num_workers_;
  SampleRandomness random_;
  RowStore store_;
  StreamReader stream_;
  std::optional<int64_t> epoch_;  // that the dataset was told
  std::exception_ptr error_;
  uint64_t failure_ = 0;  // where it is told what the dataset threw last; 0 in this run: nothing
  std::vector<OwnRow> mine_;
  OnError on_error_;
  bool timed_;
  bool opened_ = false;
};

}  // namespace stoker::detail
