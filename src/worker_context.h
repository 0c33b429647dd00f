// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What `worker_info()` returns on this thread.

#include <stoker/worker.h>

#include <optional>

namespace stoker::detail {

std::optional<WorkerInfo>& current_worker_info();

}  // namespace stoker::detail
