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
  Publisher(EpochPlan& plan, std::shared_ptr<SlotPool> pool, bool in_order, InFlightLimit limit)
      : plan_(plan), pool_(std::move(pool)), arrivals_(pool_->control(), in_order, limit) {}

  // Begins an epoch. The one before has ended.
  void begin();
  // As many batches as there is room for.
  void publish_more();
  // Opens a slot for the next batch without telling workers of it; nothing at the end of the epoch,
  // or if there is no memory for one more, which leaves the batch `pending`.
  std::optional<uint32_t> open_next();
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
  void reclaim_drained();
  Slot slot(uint32_t id) { return pool_->control().slot(id); }

  EpochPlan& plan_;
  std::shared_ptr<SlotPool> pool_;
  Arrivals arrivals_;
  std::optional<Task> pending_;     // drawn, but not published yet
  std::vector<uint32_t> draining_;  // cancelled; workers may still write to them
  bool exhausted_ = true;           // no more batches in this epoch
  std::exception_ptr error_;
};

}  // namespace stoker::detail
