// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/sample_clock.h"

#include <algorithm>

namespace stoker::detail {

SampleClock::SampleClock(uint32_t num_workers, std::chrono::duration<double> limit)
    : interval_(static_cast<int64_t>(std::clamp(1e3 * limit.count() / 8, 1.0, 1e6))),
      limit_(limit),
      samples_(num_workers) {}

void SampleClock::look(Nanoseconds now) {
  step_ = std::min<Nanoseconds>(now - now_, 2 * interval_);
  lived_ += step_;
  now_ = now;
}

bool SampleClock::is_overdue(uint32_t worker, Nanoseconds since) {
  Sample& sample = samples_[worker];
  if (sample.since != since) {
    // New since the look before.
    sample = {since, lived_ - std::clamp(now_ - since, Nanoseconds(0), step_)};
  }
  return lived_ - sample.began > limit_;
}

}  // namespace stoker::detail
