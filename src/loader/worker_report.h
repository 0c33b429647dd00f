// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The WorkerErrors: facts in, sentence out.

#include <stoker/worker.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include "memory/control.h"
#include "memory/failure.h"

namespace stoker::detail {

// An exception in `get`, `get_batch` or collation.
WorkerError report_failure(const Failure& failure);
// Main only. What a failed batch tells: a WorkerError, or without workers a std::runtime_error.
std::exception_ptr failure_of(Slot slot, bool with_workers);
// worker_init_fn or open_in_worker threw.
WorkerError report_init_failure(uint32_t id, const WorkerRecord& worker);
// A worker that ended on its own; `index` is the sample it was working on.
WorkerError report_death(uint32_t id, const WorkerRecord& worker, std::optional<size_t> index);
WorkerError report_no_fork(uint32_t id, const WorkerRecord& worker);
WorkerError report_lost_supervisor(int64_t pid);

// A process of the loader, the supervisor or the worker named, that was forked `tries` times, and
// never came as far as the user's code within `seconds`.
WorkerError report_not_started(std::optional<uint32_t> worker, int64_t pid, double seconds,
                               int tries);

// There is no memory for one more batch, or no address space.
std::runtime_error report_no_memory(uint32_t kept, uint64_t batch_bytes, uint64_t limit);

struct Busy {
  enum class At { kSample, kStart, kInitFn, kOpenInWorker };

  uint32_t id;
  int64_t pid;
  size_t index;  // of the sample
  At at = At::kSample;
};
// No batch within `seconds`; `busy` are the workers that work on it, or cannot yet.
WorkerError report_timeout(double seconds, const std::vector<Busy>& busy);

}  // namespace stoker::detail
