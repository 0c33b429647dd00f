// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a worker process does from its fork to its end.

#include <stoker/detail/core.h>

#include <cstdint>
#include <functional>

#include "memory/control.h"
#include "worker/fill.h"

namespace stoker::detail {

struct WorkerJob {
  Control* control;
  Fetcher* fetcher;
  std::function<void(int64_t)> init_fn;
  FillOptions fill = {};
};

// Tells the dataset that it has fetched its last sample in this process. What it throws then is
// printed: nobody is left to catch it.
void close_dataset(Fetcher& fetcher, const WorkerInfo& info) noexcept;

// Worker only. `replacement`: of a worker that died; first takes over what that one left. Ends the
// process, without running the program's destructors or exit handlers: they
// belong to the program's own process.
[[noreturn]] void run_worker(const WorkerJob& job, uint32_t id, bool replacement) noexcept;

}  // namespace stoker::detail
