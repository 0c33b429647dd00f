// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the control block and the slots tell of workers in trouble, and of what was lost with them.

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "arrivals.h"
#include "control.h"
#include "worker_report.h"

namespace stoker::detail {

// Main only. Why the first of these batches cannot come any more (or, unless `in_order`, why one of
// them cannot), if a worker is to blame. A batch that was lost further on is told when it is its
// turn, as long as workers are left for those before it.
std::optional<WorkerError> find_trouble(Control& control, const std::deque<InFlight>& in_flight,
                                        bool in_order);

// Main only. The workers that are working on this batch.
std::vector<Busy> busy_workers(Control& control, const InFlight& batch);

}  // namespace stoker::detail
