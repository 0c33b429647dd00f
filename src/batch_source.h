// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which samples make up which batch: the samplers that the options ask for, and the seeds, drawn
// in the order in which Python's DataLoader draws them.

#include <stoker/options.h>
#include <stoker/sampler.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace stoker::detail {

// Main process only.
class BatchSource {
 public:
  using DatasetSize = std::function<std::optional<size_t>()>;

  // Throws std::invalid_argument if the options need the dataset's size, and it has none.
  BatchSource(const DataLoaderOptions& options, DatasetSize dataset_size);

  // Draws the epoch's seed and resets the sampler.
  uint64_t begin_epoch();
  // The indices of the next batch; nothing at the end of the epoch. Throws what the sampler
  // throws, std::out_of_range for an index that the dataset does not have, std::invalid_argument
  // for an empty batch.
  std::optional<std::vector<int64_t>> next();
  std::optional<int64_t> batches_per_epoch() const;

 private:
  std::shared_ptr<Sampler<std::vector<int64_t>>> make_sampler() const;
  int64_t known_size() const;

  const DataLoaderOptions& options_;
  DatasetSize dataset_size_;
  std::optional<size_t> size_;  // at the start of the epoch
  std::shared_ptr<Sampler<std::vector<int64_t>>> sampler_;
};

}  // namespace stoker::detail
