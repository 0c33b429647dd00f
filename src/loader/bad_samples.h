// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The samples that failed and were skipped or replaced: read from the slots, counted when the user
// is given the batch.
//
// Process safety: main only.

#include <stoker/stats.h>

#include <cstdint>
#include <set>
#include <vector>

#include "memory/slot.h"

namespace stoker::detail {

class BadSamples {
 public:
  static constexpr size_t kMostListed = 1000;

  void count(const std::vector<BadSample>& bad, LoaderStats& stats);

 private:
  std::set<int64_t> listed_;
};

// What the failure that lies there tells of the sample of this index. Throws std::runtime_error if
// what lies there is damaged.
BadSample bad_sample(Slot slot, uint64_t failure, int64_t index);
// Of a completed batch of these samples, those that were replaced.
std::vector<BadSample> replaced_samples(Slot slot, const std::vector<int64_t>& indices);

}  // namespace stoker::detail
