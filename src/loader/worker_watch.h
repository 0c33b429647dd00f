// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the control block and the slots tell of workers in trouble, and of what was lost with them.

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "loader/arrivals.h"
#include "loader/worker_report.h"
#include "memory/control.h"

namespace stoker::detail {

// Main only. Why the first of these batches cannot come any more (or, unless `in_order`, why one of
// them cannot), if a worker is to blame. A batch that was lost further on is told when it is its
// turn, as long as workers are left for those before it.
std::optional<WorkerError> find_trouble(Control& control, const std::deque<InFlight>& in_flight,
                                        bool in_order);

// Main only. The workers that are working on this batch, and those that cannot work yet.
std::vector<Busy> busy_workers(Control& control, const InFlight& batch);

// How long a process may take to start. Tests have less patience.
std::chrono::nanoseconds& start_limit();

// Main only. Notices a process that hangs before it comes to the user's code: another thread of the
// program held a lock when it was forked, and in the copy nobody gives that back. All that the
// supervisor forks has the same lock, so only a new supervisor helps.
class StartWatch {
 public:
  explicit StartWatch(std::chrono::nanoseconds limit = start_limit(), int tries = 3)
      : limit_(limit), tries_(tries) {}

  // A look, after `waited`. It is those times that count, so that a program that was stopped
  // blames nobody. True: for the limit, no process that is to start has come up.
  bool is_stuck(Control& control, std::chrono::nanoseconds waited);
  // Of those that are stuck, what to say of the first, if it was the last try. Otherwise that was
  // one try more.
  std::optional<WorkerError> give_up(Control& control, int64_t supervisor);

 private:
  std::chrono::nanoseconds limit_;
  int tries_;
  int tried_ = 0;
  uint32_t up_ = 0;  // processes
  std::chrono::nanoseconds waited_{0};
};

}  // namespace stoker::detail
