// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How much memory this process could still get before something is killed for it.

#include <stoker/options.h>

#include <cstdint>
#include <filesystem>
#include <optional>

namespace stoker::detail {

// Bytes that batches may take: what the options say, or half of what is available now.
uint64_t memory_limit(const DataLoaderOptions& options);

// The least of what /proc/meminfo calls available and what is left in each control group (version
// 1 or 2) that this process is in; page cache that can be dropped counts as free. In bytes; the
// greatest number if nothing is known. `root` is where /proc and /sys are found.
uint64_t available_memory(const std::filesystem::path& root = "/");

// What tells whether a process was killed because memory ran out.
struct MemorySigns {
  // Processes that the kernel has killed for that in this process's control group, or, where groups
  // do not count, on the machine; nothing if neither is known.
  std::optional<uint64_t> oom_kills;
  uint64_t limit;      // the least of its control groups; the greatest number if there is none
  uint64_t available;  // as above
};
MemorySigns memory_signs(const std::filesystem::path& root = "/");

}  // namespace stoker::detail
