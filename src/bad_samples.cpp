// SPDX-License-Identifier: BSD-3-Clause
#include "bad_samples.h"

#include <algorithm>

#include "failure.h"

namespace stoker::detail {

void BadSamples::note(Slot slot, LoaderStats& stats) {
  const SlotHeader& header = slot.header();
  const uint32_t num_bad = header.num_bad.load(std::memory_order_relaxed);
  const uint32_t told = std::min(num_bad, SlotHeader::kMostTold);
  // A row that was fetched twice is told twice.
  std::set<int64_t> here;
  for (uint32_t i = 0; i < told; ++i) {
    const Failure failure = load_failure(slot, header.bad[i].load(std::memory_order_relaxed));
    if (!failure.index) continue;
    const auto index = static_cast<int64_t>(*failure.index);
    if (!here.insert(index).second) continue;
    ++stats.errors;
    if (listed_.size() == kMostListed || !listed_.insert(index).second) continue;
    const std::string type = failure.type_name.empty() ? "" : failure.type_name + ": ";
    stats.bad_samples.push_back({index, type + failure.text});
  }
  stats.errors += num_bad - told;
}

}  // namespace stoker::detail
