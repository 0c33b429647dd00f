// SPDX-License-Identifier: BSD-3-Clause
#include "loader/bad_samples.h"

#include "memory/failure.h"

namespace stoker::detail {

void BadSamples::count(const std::vector<BadSample>& bad, LoaderStats& stats) {
  for (const BadSample& one : bad) {
    ++stats.errors;
    if (listed_.size() == kMostListed || !listed_.insert(one.index).second) continue;
    stats.bad_samples.push_back(one);
  }
}

BadSample bad_sample(Slot slot, uint64_t offset, int64_t index) {
  const Failure failure = load_failure(slot, offset);
  const std::string type = failure.type_name.empty() ? "" : failure.type_name + ": ";
  return {index, type + failure.text};
}

std::vector<BadSample> replaced_samples(Slot slot, const std::vector<int64_t>& indices) {
  std::vector<BadSample> bad;
  for (size_t row = 0; row < indices.size(); ++row) {
    const uint64_t failure = slot.failures()[row];
    if (failure != 0) bad.push_back(bad_sample(slot, failure, indices[row]));
  }
  return bad;
}

}  // namespace stoker::detail
