// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The batches that are published and not handed out yet, and how main sleeps until the next one is
// ready.
//
// Batches of tiny samples are ready every few tens of microseconds. To be woken for each of them
// would cost main and workers more than the samples do. Then more batches are in flight, so that
// nobody runs dry, and main takes a nap: it asks to be woken by a batch further on, and at the
// latest after kNap.
//
// Process safety: main only.

#include <stoker/options.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "memory/control.h"

namespace stoker::detail {

struct InFlight {
  uint32_t sequence;
  uint32_t slot;
};

// What the options ask for.
InFlightLimit in_flight_limit(const DataLoaderOptions& options);

class Arrivals {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kNap = std::chrono::microseconds(200);
  static constexpr auto kAhead = std::chrono::milliseconds(1);

  Arrivals(Control& control, bool in_order, InFlightLimit limit)
      : control_(control), in_order_(in_order), limit_(limit) {}

  // Whether another batch should be published.
  bool has_room() const;
  void add(InFlight batch) { in_flight_.push_back(batch); }
  // One that was taken, and is to be made again: it is the next one.
  void add_first(InFlight batch) { in_flight_.push_front(batch); }
  void remove_last() { in_flight_.pop_back(); }
  const std::deque<InFlight>& in_flight() const { return in_flight_; }
  void clear();

  // Takes the batch that is next out of those in flight and returns its slot: the oldest one, or
  // unless `in_order` the one completed first; nothing if it is not complete yet.
  std::optional<uint32_t> take(Clock::time_point now);
  // After a take that gave nothing: sleeps until that may have changed, at most so long. False if
  // nothing happened meanwhile.
  bool sleep(Clock::duration at_most);

 private:
  bool is_complete(const InFlight& batch) const;
  std::deque<InFlight>::const_iterator next() const;
  uint32_t batches_to_sleep_through() const;

  Control& control_;
  bool in_order_;
  InFlightLimit limit_;
  std::deque<InFlight> in_flight_;              // in order of delivery
  uint32_t seen_ = 0;                           // the event count before take looked
  bool napped_ = false;                         // for the batch that is next
  Clock::time_point taken_;                     // when a batch was taken last
  std::chrono::nanoseconds interval_ = kAhead;  // between two of them, smoothed
};

}  // namespace stoker::detail
