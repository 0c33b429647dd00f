// SPDX-License-Identifier: BSD-3-Clause
#include "publisher.h"

#include <climits>

#include "futex.h"

namespace stoker::detail {

void Publisher::begin() {
  plan_.begin();
  exhausted_ = false;
}

void Publisher::publish_more() {
  reclaim_drained();
  while (!exhausted_ && arrivals_.has_room()) {
    const auto id = open_next();
    if (!id) return;
    Control& control = pool_->control();
    arrivals_.add({control.published(), *id});
    control.publish(*id);
    if (!control.has_sleepers()) continue;
    // The one worker that may claim it cannot be woken alone.
    const bool any = slot(*id).origin().worker == Origin::kAnyWorker;
    futex_wake(control.published_word(), any ? 1 : INT_MAX);
  }
}

std::optional<uint32_t> Publisher::open_next() {
  if (!draw()) return std::nullopt;
  const auto id = pool_->acquire(pending_->indices.size());
  if (!id) return std::nullopt;
  const Slot s = slot(*id);
  s.publish(pending_->indices, pool_->control().published(),
            {plan_.epoch(), plan_.seed(), pending_->position,
             pending_->worker.value_or(Origin::kAnyWorker)});
  if (!pending_->stream_state.empty()) s.header().stream_start = s.put_text(pending_->stream_state);
  pending_.reset();
  return id;
}

// True if a batch is pending then. What the source throws is told when it is its turn, after the
// batches before.
bool Publisher::draw() {
  if (pending_) return true;
  if (exhausted_) return false;
  try {
    pending_ = plan_.next();
  } catch (...) {
    error_ = std::current_exception();
  }
  exhausted_ = !pending_;
  return !exhausted_;
}

void Publisher::end() {
  for (const InFlight& one : in_flight()) {
    const Slot s = slot(one.slot);
    s.header().cancelled.store(1, std::memory_order_relaxed);
    const Hand me = s.main(one.sequence);
    const uint32_t rest = s.skip_rest(me);
    if (rest > 0 && s.finish(me, rest)) {
      s.header().status.store(SlotStatus::kReady, std::memory_order_relaxed);
    }
    draining_.push_back(one.slot);
  }
  arrivals_.clear();
  pending_.reset();
  error_ = nullptr;
  exhausted_ = true;
}

void Publisher::reclaim_drained() {
  std::erase_if(draining_, [this](uint32_t id) {
    if (slot(id).header().status.load(std::memory_order_acquire) == SlotStatus::kOpen) {
      return false;
    }
    pool_->give_back(id);
    return true;
  });
}

void Publisher::reclaim_all() {
  for (const InFlight& one : in_flight()) draining_.push_back(one.slot);
  arrivals_.clear();
  for (const uint32_t id : draining_) {
    slot(id).header().status.store(SlotStatus::kReady, std::memory_order_relaxed);
    pool_->give_back(id);
  }
  draining_.clear();
}

}  // namespace stoker::detail
