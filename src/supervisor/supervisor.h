// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The supervisor: a process of one thread, forked from the program early, that forks the workers,
// is their only parent, and reports their deaths in the control block. So the program needs no
// SIGCHLD handler, and no worker is ever forked from a process full of threads and devices.
//
// It ends, and ends its workers, when the program lets go of it: it watches its socket to the
// program, and the program itself. And with the program all of them end at once, see lifeline.h.
//
// What it knows of its workers' lives is its own: their code can write to the control block.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>

#include "memory/control.h"
#include "supervisor/lifeline.h"
#include "supervisor/replacements.h"

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
  // Ends it and the workers: those in the middle of a sample are killed after a short while, those
  // that close their dataset after a longer one.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  pid_t pid() const { return pid_; }
  // Main only: false once it is gone.
  bool alive() const;

 private:
  bool ends_within(int milliseconds) const;
  bool any_closing() const;
  void kill_it() const;
  void reap() const;

  Control& control_;
  Lifeline lifeline_;  // let go of last
  pid_t owner_;
  pid_t pid_ = -1;
  int process_ = -1;  // a pidfd; -1 where the kernel has none
  int socket_ = -1;
};

}  // namespace stoker::detail
