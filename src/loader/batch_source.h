// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which samples make up which batch: the samplers that the options ask for.

#include <stoker/options.h>
#include <stoker/sampler.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "loader/place.h"
#include "loader/task_source.h"

namespace stoker::detail {

// Of a dataset with indices. Main process only.
class BatchSource final : public TaskSource {
 public:
  using DatasetSize = std::function<std::optional<size_t>()>;

  // Throws std::invalid_argument if the options need the dataset's size, and it has none.
  BatchSource(const DataLoaderOptions& options, DatasetSize dataset_size);

  // Throws what the sampler throws, std::out_of_range for an index that the dataset does not have,
  // std::invalid_argument for an empty batch.
  std::optional<Task> next() override;
  void deliver(const Delivery& delivery) override;
  void end_stream(uint32_t) override {}
  std::optional<int64_t> batches_per_epoch() const override;

  // Of samplers that the program gave. Those made here depend on the loader's generator alone.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  StateDict place() const override { return place_.state_dict(); }
  void resume(const StateDict& place) override;
  void check(const StateDict& state, const StateDict& place) const override;

 protected:
  void begin() override;
  std::optional<Task> draw() override;

 private:
  bool skips() const { return options_.on_error == OnError::kSkip; }
  std::shared_ptr<Sampler<std::vector<int64_t>>> make_sampler(bool drop_last) const;
  // With kSkip a short last batch may still be filled up, or fill up others.
  bool drops_in_sampler() const { return options_.drop_last && !skips(); }
  int64_t known_size() const;
  std::optional<Task> next_full();
  void require_sound(const Place& place) const;

  const DataLoaderOptions& options_;
  DatasetSize dataset_size_;
  std::optional<size_t> size_;  // at the start of the epoch
  std::shared_ptr<Sampler<std::vector<int64_t>>> sampler_;
  Place place_;
  uint64_t position_ = 0;  // of the next sample in the epoch
};

}  // namespace stoker::detail
