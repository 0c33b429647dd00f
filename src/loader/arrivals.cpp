// SPDX-License-Identifier: BSD-3-Clause
#include "loader/arrivals.h"

#include <algorithm>

#include "memory/futex.h"

namespace stoker::detail {

InFlightLimit in_flight_limit(const DataLoaderOptions& options) {
  constexpr uint32_t kManyTinyBatches = 64;
  const int64_t batches = options.prefetch_factor.value_or(2) * options.num_workers;
  const auto usual = static_cast<uint32_t>(std::max<int64_t>(batches, 1));
  return {usual, options.prefetch_factor ? usual : std::max(usual, kManyTinyBatches)};
}

void Arrivals::clear() {
  in_flight_.clear();
  napped_ = false;
}

// seq_cst: pairs with Control::complete, see Control::want.
bool Arrivals::is_complete(const InFlight& batch) const {
  return control_.slot(batch.slot).header().status.load(std::memory_order_seq_cst) !=
         SlotStatus::kOpen;
}

std::deque<InFlight>::const_iterator Arrivals::next() const {
  if (in_order_) return is_complete(in_flight_.front()) ? in_flight_.begin() : in_flight_.end();
  auto first = in_flight_.end();
  for (auto one = in_flight_.begin(); one != in_flight_.end(); ++one) {
    if (!is_complete(*one)) continue;
    const auto stamp = [this](const InFlight& batch) {
      return control_.slot(batch.slot).header().finish_stamp;
    };
    if (first == in_flight_.end() || stamp(*one) < stamp(*first)) first = one;
  }
  return first;
}

std::optional<uint32_t> Arrivals::take(Clock::time_point now) {
  seen_ = control_.events_word().load(std::memory_order_acquire);
  const auto ready = next();
  if (ready == in_flight_.end()) return std::nullopt;
  const uint32_t slot = ready->slot;
  in_flight_.erase(ready);
  napped_ = false;
  // A long pause, between epochs say, is to be forgotten soon.
  interval_ = (7 * interval_ + std::min<std::chrono::nanoseconds>(now - taken_, kAhead)) / 8;
  taken_ = now;
  return slot;
}

// What is in flight has its places in the ring of published batches: out of order, the oldest may
// stay there while many come and go.
bool Arrivals::has_room() const {
  if (!in_flight_.empty() &&
      control_.published() - in_flight_.front().sequence >= control_.ring_size()) {
    return false;
  }
  const int64_t for_a_while = kAhead / std::max(interval_, std::chrono::nanoseconds(1));
  return in_flight_.size() < std::clamp<uint64_t>(for_a_while, limit_.usual, limit_.most);
}

// Half of those in flight stay for the workers to go on with.
uint32_t Arrivals::batches_to_sleep_through() const {
  if (!in_order_ || napped_ || interval_ >= kNap) return 0;
  const auto worth = kNap / std::max(interval_, std::chrono::nanoseconds(1));
  auto ahead = static_cast<uint32_t>(std::min<int64_t>(worth, in_flight_.size() / 2));
  while (ahead > 0 && is_complete(in_flight_[ahead])) --ahead;
  return ahead;
}

bool Arrivals::sleep(Clock::duration at_most) {
  const uint32_t ahead = batches_to_sleep_through();
  if (in_order_) {
    control_.want(in_flight_[ahead].sequence);
  } else {
    control_.want_any();
  }
  // Whoever completes it from here on sees the wish.
  const bool has_come = in_order_ ? is_complete(in_flight_[ahead]) : next() != in_flight_.end();
  if (!has_come) {
    futex_wait(control_.events_word(), seen_,
               ahead > 0 ? std::min<Clock::duration>(at_most, kNap) : at_most);
  }
  control_.want_nothing();
  if (ahead > 0) napped_ = true;
  return has_come || ahead > 0 || control_.events_word().load(std::memory_order_acquire) != seen_;
}

}  // namespace stoker::detail
