// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The samples that failed and were skipped or replaced.
//
// Process safety: main only.

#include <stoker/stats.h>

#include <cstdint>
#include <set>

#include "slot.h"

namespace stoker::detail {

class BadSamples {
 public:
  static constexpr size_t kMostListed = 1000;

  // Adds what a completed batch tells of its own.
  void note(Slot slot, LoaderStats& stats);

 private:
  std::set<int64_t> listed_;
};

}  // namespace stoker::detail
