// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Turns the finished rows of a slot into one batch. Samples that matched the slot's layout lie in
// their rows already; only those that were spilled are copied. Where a function of the user's makes
// the batch, it gets all samples, and what it returns is stored as a record.

#include <stoker/detail/core.h>

#include <cstdint>
#include <exception>
#include <optional>

#include "memory/slot.h"

namespace stoker::detail {

// What the user's function threw.
struct CollateFunctionThrew {
  std::exception_ptr error;
};

// The process that finished the last row only, before it sets the slot's status. Returns that
// status: kReady with result_layout and result_rows set; kIncomplete if samples are to be replaced;
// or kFailed with `failure` set: to the
// failure of the lowest row, whoever was faster, or to what does not match. Throws
// CollateFunctionThrew.
SlotStatus collate(Slot slot, Fetcher& fetcher, std::optional<int64_t> worker_id);

}  // namespace stoker::detail
