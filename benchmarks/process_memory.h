// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace bench {

/// The private memory, in KB, of each worker process of this one: of each of its descendants that
/// has no child of its own (a supervisor between the two is no worker).
///
/// Counted are the dirty pages that one process alone holds in private mappings, from
/// /proc/PID/smaps (Private_Dirty): what its end would give back. Not counted are pages still
/// shared with the parent, shared memory, clean pages of files, and page tables.
std::vector<int64_t> worker_private_kb();

}  // namespace bench
