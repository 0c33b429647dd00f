// SPDX-License-Identifier: BSD-3-Clause
#include "loader/publisher.h"

#include <climits>

#include "memory/futex.h"

namespace stoker::detail {

void Publisher::begin() {
  plan_.begin();
  exhausted_ = false;
  left_out_.clear();
}

void Publisher::publish_more() {
  reclaim_drained();
  if (on_error_ == OnError::kSkip) leave_out_early();
  while ((pending_ || !exhausted_) && arrivals_.has_room()) {
    const auto id = open_next();
    if (!id) return;
    arrivals_.add({pool_->control().published(), *id});
    announce(*id);
  }
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
  const auto id = pool_->acquire(pending_->num_samples, /*may_wait=*/in_flight().empty());
  if (!id) return std::nullopt;
  if (*id >= tasks_.size()) tasks_.resize(*id + 1);
  Task& task = tasks_[*id] = *std::exchange(pending_, std::nullopt);
  const Slot s = slot(*id);
  const uint32_t sequence = pool_->control().published();
  const Origin origin{plan_.epoch(), plan_.seed(), task.position,
                      task.worker.value_or(Origin::kAnyWorker), whole_batches_};
  if (task.worker) {
    s.publish_stream(static_cast<uint32_t>(task.num_samples), sequence, origin);
    if (!task.stream_state.empty()) s.header().stream_start = s.put_text(task.stream_state);
  } else {
    s.publish(task.indices, sequence, origin, task.positions);
  }
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
  error_ = nullptr;
  exhausted_ = true;
}

void Publisher::cancel(const InFlight& batch) {
  const Slot s = slot(batch.slot);
  s.header().cancelled.store(1, std::memory_order_relaxed);
  const Hand me = s.main(batch.sequence);
  const Task& task = tasks_[batch.slot];
  const uint32_t rest =
      s.skip_rest(me, whole_batches_ || task.worker ? 1 : static_cast<uint32_t>(task.num_samples));
  if (rest > 0 && s.finish(me, rest)) {
    s.header().status.store(SlotStatus::kReady, std::memory_order_relaxed);
  }
  draining_.push_back(batch.slot);
}

// The last one first, so that they come in the same order again.
void Publisher::take_back_from(size_t first) {
  if (pending_) plan_.source().give_back(*std::exchange(pending_, std::nullopt));
  while (in_flight().size() > first) {
    const InFlight last = in_flight().back();
    give_back(last.slot);
    arrivals_.remove_last();
    cancel(last);
  }
  exhausted_ = false;
  error_ = nullptr;  // the source throws it again
}

// What is known to have failed is not tried again.
void Publisher::give_back(uint32_t id) {
  const Slot s = slot(id);
  Task& task = tasks_[id];
  if (s.header().status.load(std::memory_order_acquire) != SlotStatus::kIncomplete) {
    plan_.source().give_back(std::move(task));
    return;
  }
  Task good;
  for (uint32_t row = 0; row < task.num_samples; ++row) {
    if (s.state(row) == RowState::kBad) {
      left_out_.emplace(task.position_of(row), bad_sample(s, s.failures()[row], task.indices[row]));
    } else {
      good.indices.push_back(task.indices[row]);
      good.positions.push_back(task.position_of(row));
    }
  }
  if (good.indices.empty()) return;
  good.num_samples = good.indices.size();
  good.position = good.positions.front();
  plan_.source().give_back(std::move(good));
}

void Publisher::leave_out(uint32_t id) {
  take_back();
  give_back(id);
}

// So that the consumer need not wait until the batch is its turn.
void Publisher::leave_out_early() {
  for (size_t i = 0; i < in_flight().size(); ++i) {
    const auto& status = slot(in_flight()[i].slot).header().status;
    if (status.load(std::memory_order_acquire) != SlotStatus::kIncomplete) continue;
    take_back_from(i);
    return;
  }
}

Delivery Publisher::delivery_of(uint32_t id) {
  const Task& task = tasks_[id];
  const SlotHeader& header = slot(id).header();
  Delivery delivery{.position = task.position,
                    .samples = header.fetched,
                    .worker = task.worker,
                    .end = task.end()};
  if (task.worker) delivery.stream_state = slot(id).text(header.stream_state);
  if (on_error_ == OnError::kSkip) delivery.bad_samples = take_left_out(delivery.end);
  if (on_error_ == OnError::kSubstitute) {
    delivery.bad_samples = replaced_samples(slot(id), task.indices);
  }
  return delivery;
}

std::vector<BadSample> Publisher::take_left_out(uint64_t before) {
  std::vector<BadSample> bad;
  const auto end = left_out_.lower_bound(before);
  for (auto one = left_out_.begin(); one != end; ++one) bad.push_back(std::move(one->second));
  left_out_.erase(left_out_.begin(), end);
  return bad;
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
