// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How much memory this process could still get before something is killed for it.

#include <cstdint>
#include <filesystem>

namespace stoker::detail {

// The least of what /proc/meminfo calls available and what is left in each control group (version
// 1 or 2) that this process is in; page cache that can be dropped counts as free. In bytes; the
// greatest number if nothing is known. `root` is where /proc and /sys are found.
uint64_t available_memory(const std::filesystem::path& root = "/");

}  // namespace stoker::detail
