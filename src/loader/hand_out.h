// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Puts tensors over a finished slot.

#include <stoker/detail/flat_sample.h>

#include <cstdint>
#include <memory>

#include "loader/slot_pool.h"

namespace stoker::detail {

// Main only. The tensors lie in the slot and hold it until the last of them is gone; strings are
// copied. A batch without tensors gives the slot back at once. Pins the batch if the pool is told
// to. `single`: the batch is one row, and its tensors have no further dimension.
void hand_out(const std::shared_ptr<SlotPool>& pool, uint32_t slot, BatchLeaves& batch,
              bool single = false);

}  // namespace stoker::detail
