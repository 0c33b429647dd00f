// SPDX-License-Identifier: BSD-3-Clause
#include "batch_source.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "seed.h"

namespace stoker::detail {

BatchSource::BatchSource(const DataLoaderOptions& options, DatasetSize dataset_size)
    : options_(options),
      dataset_size_(std::move(dataset_size)),
      size_(dataset_size_()),
      sampler_(make_sampler()) {}

int64_t BatchSource::known_size() const {
  const auto size = dataset_size_();
  if (!size) {
    throw std::invalid_argument(
        "stoker: the dataset has no size; give a sampler or a batch_sampler, or let size() return "
        "how many samples there are");
  }
  return static_cast<int64_t>(*size);
}

std::shared_ptr<Sampler<std::vector<int64_t>>> BatchSource::make_sampler() const {
  if (options_.batch_sampler) return options_.batch_sampler;
  std::shared_ptr<Sampler<int64_t>> sampler = options_.sampler;
  if (!sampler && options_.shuffle) {
    sampler = std::make_shared<RandomSampler>(known_size(), options_.generator);
  } else if (!sampler) {
    sampler = std::make_shared<SequentialSampler>(known_size());
  }
  return std::make_shared<BatchSampler>(sampler, options_.batch_size, options_.drop_last);
}

uint64_t BatchSource::begin_epoch() {
  const uint64_t seed = draw_seed(options_.generator);
  if (const auto size = dataset_size_(); size != size_) {  // it may have grown
    size_ = size;
    sampler_ = make_sampler();
  }
  sampler_->reset();
  return seed;
}

std::optional<std::vector<int64_t>> BatchSource::next() {
  auto batch = sampler_->next();
  if (!batch) return std::nullopt;
  if (batch->empty()) {
    throw std::invalid_argument("stoker: the batch_sampler yielded a batch without indices");
  }
  for (const int64_t index : *batch) {
    if (index < 0 || (size_ && static_cast<size_t>(index) >= *size_)) {
      throw std::out_of_range("stoker: the sampler yielded index " + std::to_string(index) +
                              (size_ ? " for a dataset of " + std::to_string(*size_) + " samples"
                                     : ", which is negative"));
    }
  }
  return batch;
}

std::optional<int64_t> BatchSource::batches_per_epoch() const { return make_sampler()->size(); }

}  // namespace stoker::detail
