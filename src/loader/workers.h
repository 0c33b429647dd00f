// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The worker processes of a loader, as main has them: forked, looked after, ended.
//
// Process safety: main only.

#include <chrono>
#include <optional>

#include "loader/worker_watch.h"
#include "supervisor/supervisor.h"
#include "worker/worker_loop.h"

namespace stoker::detail {

class Workers {
 public:
  Workers(WorkerJob job, SupervisorLimits limits) : job_(std::move(job)), limits_(limits) {}

  // Forks them; none lives. Throws std::system_error.
  void start();
  // Ends them; nobody writes to any slot from then on.
  void end() { supervisor_.reset(); }
  bool live() const { return supervisor_.has_value(); }
  // Whether they live, and nothing went wrong with any.
  bool are_well() const;

  // After main has waited that long, and nothing happened. Forks those again that hang or
  // end in their start; throws WorkerError if that does not help, or if the supervisor ended later,
  // which cannot tell of its own end.
  void look(std::chrono::nanoseconds waited);

 private:
  void fork(bool taking_over);

  WorkerJob job_;
  SupervisorLimits limits_;
  std::optional<Supervisor> supervisor_;
  StartWatch start_watch_;
};

}  // namespace stoker::detail
