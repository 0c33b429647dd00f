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
  while ((pending_ || !exhausted_) && arrivals_.has_room()) {
    const auto id = open_next();
    if (!id) return;
    arrivals_.add({pool_->control().published(), *id});
    announce(*id);
  }
}

void Publisher::publish_first(uint32_t id) {
  arrivals_.add_first({pool_->control().published(), id});
  announce(id);
}

void Publisher::announce(uint32_t id) {
  Control& control = pool_->control();
  control.publish(id);
  if (!control.has_sleepers()) return;
  // The one worker that may claim it cannot be woken alone.
  const bool any = slot(id).origin().worker == Origin::kAnyWorker;
  futex_wake(control.published_word(), any ? 1 : INT_MAX);
}

std::optional<uint32_t> Publisher::open_next() {
  if (!draw()) return std::nullopt;
  const auto id = pool_->acquire(pending_->indices.size(), /*may_wait=*/in_flight().empty());
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
  for (const InFlight& one : in_flight()) cancel(one);
  arrivals_.clear();
  pending_.reset();
  reserve_.reset();
  error_ = nullptr;
  exhausted_ = true;
}

void Publisher::cancel(const InFlight& batch) {
  const Slot s = slot(batch.slot);
  s.header().cancelled.store(1, std::memory_order_relaxed);
  const Hand me = s.main(batch.sequence);
  const uint32_t rest = s.skip_rest(me, pool_->num_samples(batch.slot));
  if (rest > 0 && s.finish(me, rest)) {
    s.header().status.store(SlotStatus::kReady, std::memory_order_relaxed);
  }
  draining_.push_back(batch.slot);
}

// Which sample takes which place depends only on which ones fail: batches are refilled in the order
// of their delivery, and what was drawn ahead of them is taken back for it.
std::optional<int64_t> Publisher::take_last() {
  auto index = plan_.take_last();
  if (index) return index;
  if (reserve_) std::swap(reserve_, pending_);
  if (!pending_) {
    if (in_flight().empty()) return std::nullopt;
    const InFlight last = in_flight().back();
    const Slot s = slot(last.slot);
    pending_ = Task{{s.indices(), s.indices() + s.num_samples()}, s.origin().first_position};
    arrivals_.remove_last();
    cancel(last);
  }
  index = pending_->indices.back();
  pending_->indices.pop_back();
  if (pending_->indices.empty()) {
    pending_.reset();
  } else if (is_short(*pending_)) {
    std::swap(reserve_, pending_);
  }
  return index;
}

bool Publisher::refill(uint32_t id) {
  const Slot s = slot(id);
  std::vector<uint32_t> again;
  std::vector<int64_t> good;
  for (uint32_t row = 0; row < s.num_samples(); ++row) {
    std::optional<int64_t> index = static_cast<int64_t>(s.indices()[row]);
    if (s.state(row) == RowState::kBad) {
      index = take_last();
      if (index) plan_.count_taken();
      again.push_back(row);
    }
    if (!index) continue;
    s.indices()[row] = static_cast<size_t>(*index);
    good.push_back(*index);
  }
  if (good.size() == s.num_samples()) {
    s.publish_again(again, pool_->control().published());
    return true;
  }
  Task rest{std::move(good), s.origin().first_position};
  pool_->give_back(id);
  if (!rest.indices.empty() && !is_short(rest)) pending_ = std::move(rest);
  return false;
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
