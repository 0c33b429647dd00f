// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The supervisor: a process of one thread, forked from the program early, that forks the workers,
// is their only parent, and reports their deaths in the control block. So the program needs no
// SIGCHLD handler, and no worker is ever forked from a process full of threads and devices.
//
// It ends, and ends its workers, when the program lets go of it or is gone, however that happened:
// it watches its socket to the program and the program itself.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>

#include "control.h"
#include "replacements.h"

namespace stoker::detail {

struct SupervisorLimits {
  ReplacementLimits replacements;
  std::chrono::duration<double> sample_timeout{0};  // 0: none
};

class Supervisor {
 public:
  using RunWorker = std::function<void(uint32_t id, bool replacement)>;

  // Main only. Forks it; it forks workers 0 .. num_workers - 1 at once, each of which runs
  // `run_worker`. Throws std::system_error if the fork fails.
  Supervisor(Control& control, SupervisorLimits limits, const RunWorker& run_worker);
  // Ends it and the workers: those in the middle of a sample are killed after a short while.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  pid_t pid() const { return pid_; }
  // Main only: false once it is gone.
  bool alive() const;

 private:
  bool ends_within(int milliseconds) const;
  void kill_it() const;
  void reap() const;

  Control& control_;
  pid_t owner_;
  pid_t pid_ = -1;
  int process_ = -1;  // a pidfd; -1 where the kernel has none
  int socket_ = -1;
};

}  // namespace stoker::detail
