// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// For how long workers have been at their samples, in the time that the supervisor lived through.
// While the whole program is stopped (SIGSTOP: a debugger, a batch system) the clock goes on and
// the workers do not; they must not be killed for that.

#include <chrono>
#include <cstdint>
#include <vector>

namespace stoker::detail {

class SampleClock {
 public:
  using Nanoseconds = std::chrono::nanoseconds;

  SampleClock(uint32_t num_workers, std::chrono::duration<double> limit);

  // How long to wait between two looks: of the limit, an eighth may pass unnoticed.
  std::chrono::milliseconds interval() const { return interval_; }
  // A look, at this time of the steady clock. If it comes late by more than another interval, the
  // supervisor was stopped, and the rest of the time does not count.
  void look(Nanoseconds now);
  // Whether the sample that the worker began `since` then takes longer than the limit.
  bool is_overdue(uint32_t worker, Nanoseconds since);

 private:
  struct Sample {
    Nanoseconds since{0};
    Nanoseconds began{0};  // in time lived
  };

  std::chrono::milliseconds interval_;
  std::chrono::duration<double> limit_;
  std::vector<Sample> samples_;  // one per worker
  Nanoseconds now_{0};
  Nanoseconds step_{0};  // what of the time since the look before counts
  Nanoseconds lived_{0};
};

}  // namespace stoker::detail
