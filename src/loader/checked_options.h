// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/detail/core.h>
#include <stoker/options.h>

#include <cstdint>

namespace stoker::detail {

constexpr int64_t kMostWorkers = 4096;   // Slot::kMostWorkers
constexpr int64_t kMostInFlight = 8192;  // batches; half of Control::kMaxSlots

// The options, with a generator made of the seed. Throws std::invalid_argument for what the
// loader cannot do; warns of more workers than cores, as Python does.
DataLoaderOptions checked(DataLoaderOptions options);

// Throws std::invalid_argument for options that do not go with this kind of dataset or batch.
void check_for_dataset(const DataLoaderOptions& options, const Fetcher& fetcher);

}  // namespace stoker::detail
