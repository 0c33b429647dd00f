// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What `worker_info()` returns on this thread.

#include <stoker/worker.h>

#include <optional>

namespace stoker::detail {

std::optional<WorkerInfo>& current_worker_info();

// Sets it for a while. What was there before is of a loader in whose `get` this one runs.
class WorkerInfoScope {
 public:
  explicit WorkerInfoScope(const WorkerInfo& info)
      : current_(current_worker_info()), outer_(current_) {
    current_ = info;
  }
  ~WorkerInfoScope() { current_ = outer_; }
  WorkerInfoScope(const WorkerInfoScope&) = delete;
  WorkerInfoScope& operator=(const WorkerInfoScope&) = delete;

 private:
  std::optional<WorkerInfo>& current_;
  std::optional<WorkerInfo> outer_;
};

}  // namespace stoker::detail
