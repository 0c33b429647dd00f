// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/options.h>

#include "loader/slot_pool.h"

namespace stoker::detail {

// Main only, after the workers are forked: it asks the driver. Tells the pool for which device its
// batches are copied, and how they are pinned: in place where the accelerator's runtime can lock
// memory and libtorch tells of its copies; else through libtorch's own pinned memory. Warns where
// `pin_memory` cannot be done. Throws std::invalid_argument if `device` cannot be used.
void use_accelerator(SlotPool& pool, const DataLoaderOptions& options);

}  // namespace stoker::detail
