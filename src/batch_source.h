// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which samples make up which batch: the samplers that the options ask for.

#include <stoker/options.h>
#include <stoker/sampler.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "place.h"
#include "task_source.h"

namespace stoker::detail {

// Of a dataset with indices. Main process only.
class BatchSource final : public TaskSource {
 public:
  using DatasetSize = std::function<std::optional<size_t>()>;

  // Throws std::invalid_argument if the options need the dataset's size, and it has none.
  BatchSource(const DataLoaderOptions& options, DatasetSize dataset_size);

  void reset() override;
  // Throws what the sampler throws, std::out_of_range for an index that the dataset does not have,
  // std::invalid_argument for an empty batch.
  std::optional<Task> next() override;
  void deliver(const Delivery& delivery) override {
    place_.deliver(delivery.position, delivery.samples);
  }
  std::optional<int64_t> take_last() override;
  void end_stream(uint32_t) override {}
  std::optional<int64_t> batches_per_epoch() const override;

  // Of samplers that the program gave. Those made here depend on the loader's generator alone.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  StateDict place() const override { return place_.state_dict(); }
  void resume(const StateDict& place) override;

 private:
  std::shared_ptr<Sampler<std::vector<int64_t>>> make_sampler() const;
  int64_t known_size() const;
  std::optional<Task> draw();
  std::optional<Task> draw_from_sampler();

  const DataLoaderOptions& options_;
  DatasetSize dataset_size_;
  std::optional<size_t> size_;  // at the start of the epoch
  std::shared_ptr<Sampler<std::vector<int64_t>>> sampler_;
  Place place_;
  uint64_t position_ = 0;  // of the next sample in the epoch
  // All that the sampler still had, once a sample was taken from its end.
  std::optional<std::deque<Task>> rest_;
};

}  // namespace stoker::detail
