// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace stoker {

/// Seed of this run's tests, printed when they start: `--seed=N`, else STOKER_TEST_SEED, else new.
uint64_t test_seed();

}  // namespace stoker
