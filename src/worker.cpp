// SPDX-License-Identifier: BSD-3-Clause
#include <stoker/worker.h>

#include <utility>

#include "worker_context.h"

namespace stoker {

namespace detail {

std::optional<WorkerInfo>& current_worker_info() {
  static thread_local std::optional<WorkerInfo> info;
  return info;
}

}  // namespace detail

std::optional<WorkerInfo> worker_info() noexcept { return detail::current_worker_info(); }

WorkerError::WorkerError(const std::string& message, Facts facts)
    : std::runtime_error(message), facts_(std::move(facts)) {}

}  // namespace stoker
