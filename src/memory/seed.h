// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Seeds, drawn as Python's DataLoader draws them.

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

namespace stoker::detail {

// One draw of `torch.empty((), dtype=torch.int64).random_(generator=generator)`; without a
// generator, from torch's default one.
uint64_t draw_seed(const std::optional<at::Generator>& generator);

}  // namespace stoker::detail
