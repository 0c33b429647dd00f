// SPDX-License-Identifier: BSD-3-Clause
#include "loader/memory_budget.h"

#include <algorithm>

namespace stoker::detail {

bool MemoryBudget::has_room(uint64_t reused) const {
  if (expected_ == 0) return in_flight_ < shares_;
  // Alone, a batch may turn out small.
  const uint64_t more = in_flight_ == 0 ? least_ : expected_;
  return sum_ - reused + in_flight_ * expected_ + more <= limit_;
}

uint64_t MemoryBudget::begin(uint32_t slot) {
  if (slot >= held_.size()) {
    held_.resize(slot + 1);
    locked_.resize(slot + 1);
    is_in_flight_.resize(slot + 1);
  }
  set(slot, beyond_batch(slot));
  is_in_flight_[slot] = true;
  const uint64_t room = limit_ - std::min(limit_, sum_ + in_flight_ * expected_);
  ++in_flight_;
  return std::max<uint64_t>(
      1, std::min(room, expected_ + (room - std::min(room, expected_)) / shares_));
}

void MemoryBudget::learn(uint32_t slot, uint64_t bytes) {
  end(slot);
  set(slot, std::max(bytes, locked_[slot]));
  least_ = expected_ == 0 ? bytes : std::min(least_ + least_ / 16, bytes);
  expected_ = std::max(expected_ - expected_ / 16, bytes);
}

void MemoryBudget::end(uint32_t slot) {
  if (!is_in_flight_[slot]) return;
  is_in_flight_[slot] = false;
  --in_flight_;
  set(slot, std::max(expected_, locked_[slot]));
}

void MemoryBudget::drop(uint32_t slot) {
  locked_[slot] = 0;
  set(slot, 0);
}

void MemoryBudget::lock(uint32_t slot, uint64_t bytes) {
  locked_[slot] = bytes;
  set(slot, std::max(held_[slot], bytes));
}

uint64_t MemoryBudget::beyond_batch(uint32_t slot) const {
  if (slot >= locked_.size()) return 0;
  return locked_[slot] - std::min(locked_[slot], expected_);
}

bool MemoryBudget::is_unusual(uint64_t bytes) const {
  constexpr uint64_t kWorthIt = 16 << 20;
  return bytes > expected_ + kWorthIt && bytes / 4 > expected_;
}

void MemoryBudget::set(uint32_t slot, uint64_t bytes) {
  sum_ += bytes - held_[slot];
  held_[slot] = bytes;
}

}  // namespace stoker::detail
