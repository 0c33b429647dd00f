// SPDX-License-Identifier: BSD-3-Clause
#include "loader/workers.h"

namespace stoker::detail {

bool Workers::are_well() const {
  return supervisor_ && supervisor_->alive() && job_.control->troubles().load() == 0;
}

void Workers::start() {
  job_.control->reset();
  fork(/*taking_over=*/false);
}

void Workers::fork(bool taking_over) {
  supervisor_.emplace(*job_.control, limits_, [this, taking_over](uint32_t id, bool replacement) {
    run_worker(job_, id, replacement || taking_over);
  });
}

// What hangs in its start does so in all that its supervisor forks. A supervisor ends in its start
// if libtorch finds its thread pool half made there, by another thread of a program that was itself
// forked.
void Workers::look(std::chrono::nanoseconds waited) {
  Control& control = *job_.control;
  const int64_t pid = supervisor_->pid();
  const bool gone = !supervisor_->alive();
  const bool started = control.supervised().load(std::memory_order_acquire) != 0;
  if (gone && started) throw report_lost_supervisor(pid);
  if (!gone && !start_watch_.is_stuck(control, waited)) return;
  const auto error = start_watch_.give_up(control, pid);
  supervisor_.reset();
  if (error) throw gone ? report_lost_supervisor(pid) : *error;
  control.forget_workers();
  fork(/*taking_over=*/true);
}

}  // namespace stoker::detail
