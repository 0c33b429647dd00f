// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Publishes the batches of an epoch to the workers, as far ahead as is allowed, and takes the slots
// of those back that nobody wants any more.
//
// Process safety: main only.

#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "loader/arrivals.h"
#include "loader/bad_samples.h"
#include "loader/epoch_plan.h"
#include "loader/slot_pool.h"

namespace stoker::detail {

class Publisher {
 public:
  // `whole_batches`: one worker fetches all samples of a batch at once.
  Publisher(EpochPlan& plan, std::shared_ptr<SlotPool> pool, const DataLoaderOptions& options,
            InFlightLimit limit, bool whole_batches)
      : plan_(plan),
        pool_(std::move(pool)),
        arrivals_(pool_->control(), options.in_order, limit),
        on_error_(options.on_error),
        whole_batches_(whole_batches) {}

  // Begins an epoch. The one before has ended.
  void begin();
  // As many batches as there is room for.
  void publish_more();
  // Opens a slot for the next batch without telling workers of it; nothing at the end of the epoch,
  // or if there is no memory for one more, which leaves the batch `pending`.
  std::optional<uint32_t> open_next();
  // Of a batch that was taken out of those in flight, and of which some samples failed: leaves
  // those out of the epoch, so that all behind them move up. The slot stays the caller's.
  void leave_out(uint32_t slot);
  // All that is in flight is to be made again.
  void take_back() { take_back_from(0); }
  // The batch that a slot was opened for.
  const Task& task(uint32_t slot) const { return tasks_[slot]; }
  // Of a completed batch, what the program's getting it will change.
  Delivery delivery_of(uint32_t slot);
  // The samples that were left out before that position of the epoch, each once.
  std::vector<BadSample> take_left_out(uint64_t before);
  // What is in flight is skipped, not waited for.
  void end();
  // No worker lives, so nobody writes to any slot: takes all back.
  void reclaim_all();

  Arrivals& arrivals() { return arrivals_; }
  const std::deque<InFlight>& in_flight() const { return arrivals_.in_flight(); }
  // There is a batch to make, and no memory for it yet.
  bool is_pending() const { return pending_.has_value(); }
  // Workers may still write to slots of batches that were skipped.
  bool is_draining() const { return !draining_.empty(); }
  // What the source of the batches threw, when all batches before were handed out.
  std::exception_ptr take_error() { return std::exchange(error_, nullptr); }

 private:
  bool draw();
  void announce(uint32_t slot);
  void cancel(const InFlight& batch);
  void take_back_from(size_t first);
  void give_back(uint32_t slot);
  void leave_out_early();
  void reclaim_drained();
  Slot slot(uint32_t id) { return pool_->control().slot(id); }

  EpochPlan& plan_;
  std::shared_ptr<SlotPool> pool_;
  Arrivals arrivals_;
  OnError on_error_;
  bool whole_batches_;
  std::optional<Task> pending_;             // drawn, but not published yet
  std::vector<Task> tasks_;                 // by slot: what it was opened for
  std::map<uint64_t, BadSample> left_out_;  // by position; not taken yet
  std::vector<uint32_t> draining_;          // cancelled; workers may still write to them
  bool exhausted_ = true;                   // no more batches in this epoch
  std::exception_ptr error_;
};

}  // namespace stoker::detail
