// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Publishes the batches of an epoch to the workers, as far ahead as is allowed, and takes the slots
// of those back that nobody wants any more.
//
// Process safety: main only.

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "arrivals.h"
#include "epoch_plan.h"
#include "slot_pool.h"

namespace stoker::detail {

class Publisher {
 public:
  Publisher(EpochPlan& plan, std::shared_ptr<SlotPool> pool, const DataLoaderOptions& options,
            InFlightLimit limit)
      : plan_(plan),
        pool_(std::move(pool)),
        arrivals_(pool_->control(), options.in_order, limit),
        batch_size_(static_cast<uint64_t>(options.batch_size)),
        drop_last_(options.drop_last) {}

  // Begins an epoch. The one before has ended.
  void begin();
  // As many batches as there is room for.
  void publish_more();
  // Opens a slot for the next batch without telling workers of it; nothing at the end of the epoch,
  // or if there is no memory for one more, which leaves the batch `pending`.
  std::optional<uint32_t> open_next();
  // Of a batch of which some samples failed: puts the last ones of the epoch in their place, and
  // opens it again for them; false if there are not enough: then what is good of it is the last
  // batch of the epoch, and to be made anew.
  bool refill(uint32_t slot);
  // Tells the workers of a batch that is open, and is the next one to be handed out.
  void publish_first(uint32_t slot);
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
  std::optional<int64_t> take_last();
  bool is_short(const Task& task) const { return drop_last_ && task.indices.size() < batch_size_; }
  void reclaim_drained();
  Slot slot(uint32_t id) { return pool_->control().slot(id); }

  EpochPlan& plan_;
  std::shared_ptr<SlotPool> pool_;
  Arrivals arrivals_;
  uint64_t batch_size_;
  bool drop_last_;
  std::optional<Task> pending_;     // drawn, but not published yet
  std::optional<Task> reserve_;     // too short to be published, but samples may be taken from it
  std::vector<uint32_t> draining_;  // cancelled; workers may still write to them
  bool exhausted_ = true;           // no more batches in this epoch
  std::exception_ptr error_;
};

}  // namespace stoker::detail
