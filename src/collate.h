// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Turns the finished rows of a slot into one batch. Samples that matched the slot's layout lie in
// their rows already; only those that were spilled are copied.

#include <cstdint>
#include <optional>

#include "slot.h"

namespace stoker::detail {

// The process that finished the last row only, before it sets the slot's status. Returns that
// status: kReady with result_layout and result_rows set, or kFailed with `failure` set: to the
// failure of the lowest row, whoever was faster, or to what does not match.
SlotStatus collate(Slot slot, std::optional<int64_t> worker_id);

}  // namespace stoker::detail
