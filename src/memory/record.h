// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A record: one sample on its own in a slot's open end, its layout and then its row.

#include <ATen/core/Tensor.h>
#include <stoker/detail/flat_sample.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "memory/row_layout.h"
#include "memory/slot.h"

namespace stoker::detail {

// Stores a sample with that encoded layout, which is its own. The offset of the record; nothing if
// the open end is full.
std::optional<uint64_t> store_record(Slot slot, const std::vector<std::byte>& layout,
                                     const FlatSample& sample);

// Row `row` of n as the leaves of a single sample. Its tensors lie in the slot, and do not keep it.
// The layout is sound, and its rows lie in the slot. Throws std::runtime_error for a damaged
// string.
BatchLeaves read_row(Slot slot, const RowLayout& layout, std::byte* rows, uint64_t n, uint64_t row);

}  // namespace stoker::detail
