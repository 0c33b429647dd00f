// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/detail/members.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace stoker {

/// Sample i is what a function makes of a dataset's sample i: an augmentation, a conversion. The
/// function runs where the dataset's `get` does, in the workers. `map` of torch::data's datasets is
/// much the same; in Python it is what the datasets' own `transform` arguments are for.
///
///     stoker::TransformedDataset flipped(photos, [](torch::Tensor photo) { return photo.flip(2);
///     });
template <MapDataset Dataset, std::invocable<SampleOf<Dataset>> Transform>
class TransformedDataset {
 public:
  using Sample = std::remove_cvref_t<std::invoke_result_t<Transform&, SampleOf<Dataset>>>;

  TransformedDataset(Dataset dataset, Transform transform)
      : dataset_(std::move(dataset)), transform_(std::move(transform)) {}

  Sample get(size_t index) { return std::invoke(transform_, dataset_.get(index)); }
  std::vector<Sample> get_batch(std::span<const size_t> indices)  //
      requires BatchedDataset<Dataset> {
    std::vector<Sample> samples;
    samples.reserve(indices.size());
    for (auto&& sample : detail::fetch_all(dataset_, indices)) {
      samples.push_back(std::invoke(transform_, std::move(sample)));
    }
    return samples;
  }
  auto size() { return dataset_.size(); }

  /// For the loader, which tells them of epochs and workers.
  template <class Tell>
  void for_each_member(Tell tell) {
    tell(dataset_);
  }

  Dataset& dataset() { return dataset_; }

 private:
  Dataset dataset_;
  Transform transform_;
};

}  // namespace stoker
