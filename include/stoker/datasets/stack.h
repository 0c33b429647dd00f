// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/detail/members.h>

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace stoker {

namespace detail {

// Throws std::invalid_argument unless there is a dataset and all have the same size.
size_t same_size(std::span<const size_t> sizes);

}  // namespace detail

/// Sample i is made of sample i of each of some datasets: a tuple of them with
/// `StackDataset{images, texts}`, or `Whole{image, text}` with `stack<Whole>(images, texts)`, for a
/// struct with SampleTraits. Compare `torch.utils.data.StackDataset`, with and without keywords.
template <class Whole, MapDataset... Datasets>
requires(sizeof...(Datasets) > 0) class StackDataset {
 public:
  /// Throws `std::invalid_argument` unless all have the same size.
  explicit StackDataset(Datasets... datasets) : datasets_(std::move(datasets)...) {
    std::apply(
        [&](auto&... each) {
          size_ = detail::same_size(std::array{detail::known_size_of(each, "StackDataset")...});
        },
        datasets_);
  }

  Whole get(size_t index) {
    if (index >= size_) detail::refuse_index("StackDataset", index, size_);
    return std::apply([&](auto&... each) { return Whole{each.get(index)...}; }, datasets_);
  }
  std::vector<Whole> get_batch(std::span<const size_t> indices)  //
      requires(BatchedDataset<Datasets> || ...) {
    for (const size_t index : indices) {
      if (index >= size_) detail::refuse_index("StackDataset", index, size_);
    }
    return std::apply(
        [&](auto&... each) { return zip(std::tuple{detail::fetch_all(each, indices)...}); },
        datasets_);
  }
  size_t size() const { return size_; }

  /// For the loader, which tells them of epochs and workers.
  template <class Tell>
  void for_each_member(Tell tell) {
    std::apply([&](auto&... each) { (tell(each), ...); }, datasets_);
  }

 private:
  template <class Columns>
  std::vector<Whole> zip(Columns columns) {
    std::vector<Whole> samples;
    const size_t count = std::get<0>(columns).size();
    samples.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      std::apply([&](auto&... column) { samples.push_back(Whole{std::move(column[i])...}); },
                 columns);
    }
    return samples;
  }

  std::tuple<Datasets...> datasets_;
  size_t size_ = 0;
};

template <class... Datasets>
StackDataset(Datasets...) -> StackDataset<std::tuple<SampleOf<Datasets>...>, Datasets...>;

/// See StackDataset.
template <class Whole, MapDataset... Datasets>
StackDataset<Whole, Datasets...> stack(Datasets... datasets) {
  return StackDataset<Whole, Datasets...>(std::move(datasets)...);
}

/// Sample i is a map of sample i of each of some datasets of one type, under their names. Compare
/// `torch.utils.data.StackDataset` with keywords.
template <MapDataset Dataset>
class NamedStackDataset {
 public:
  using Sample = std::map<std::string, SampleOf<Dataset>>;

  /// Throws `std::invalid_argument` if there are none, or unless all have the same size.
  explicit NamedStackDataset(std::map<std::string, Dataset> datasets)
      : datasets_(std::move(datasets)) {
    std::vector<size_t> sizes;
    for (auto& [name, dataset] : datasets_) {
      sizes.push_back(detail::known_size_of(dataset, "NamedStackDataset"));
    }
    size_ = detail::same_size(sizes);
  }

  Sample get(size_t index) {
    if (index >= size_) detail::refuse_index("NamedStackDataset", index, size_);
    Sample sample;
    for (auto& [name, dataset] : datasets_) sample.emplace(name, dataset.get(index));
    return sample;
  }
  std::vector<Sample> get_batch(std::span<const size_t> indices)  //
      requires BatchedDataset<Dataset> {
    for (const size_t index : indices) {
      if (index >= size_) detail::refuse_index("NamedStackDataset", index, size_);
    }
    std::vector<Sample> samples(indices.size());
    for (auto& [name, dataset] : datasets_) {
      auto column = detail::fetch_all(dataset, indices);
      for (size_t i = 0; i < samples.size(); ++i) samples[i].emplace(name, std::move(column[i]));
    }
    return samples;
  }
  size_t size() const { return size_; }

  /// For the loader, which tells them of epochs and workers.
  template <class Tell>
  void for_each_member(Tell tell) {
    for (auto& [name, dataset] : datasets_) tell(dataset);
  }

 private:
  std::map<std::string, Dataset> datasets_;
  size_t size_ = 0;
};

}  // namespace stoker
