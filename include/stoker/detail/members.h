// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What datasets made of other datasets ask of those.

#include <stoker/dataset.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace stoker::detail {

// How many samples a dataset has, now.
template <MapDataset D>
std::optional<size_t> size_of(D& dataset) {
  if constexpr (requires { static_cast<size_t>(dataset.size()); }) {
    return static_cast<size_t>(dataset.size());
  } else {
    return dataset.size();  // of torch::data's datasets, an optional
  }
}
template <MapDataset D>
size_t known_size_of(D& dataset, const char* whole) {
  if (const auto size = size_of(dataset)) return *size;
  throw std::invalid_argument(std::string("stoker: a dataset of a ") + whole + " has no size");
}

[[noreturn]] void refuse_index(const char* whole, size_t index, size_t size);

// The samples of these indices: fetched as a batch where the dataset can do that. Throws
// std::length_error if it returns another number of them.
template <MapDataset D>
std::vector<SampleOf<D>> fetch_all(D& dataset, std::span<const size_t> indices) {
  std::vector<SampleOf<D>> samples;
  if constexpr (BatchedDataset<D>) {
    samples = dataset.get_batch(indices);
    if (samples.size() != indices.size()) {
      throw std::length_error("stoker: get_batch returned " + std::to_string(samples.size()) +
                              " samples for " + std::to_string(indices.size()) + " indices");
    }
  } else {
    samples.reserve(indices.size());
    for (const size_t index : indices) samples.push_back(dataset.get(index));
  }
  return samples;
}

// A dataset that copies tensors of many samples at once to where they are collated; see
// TensorDataset::gather.
template <class D>
concept GatheringDataset = MapDataset<D> &&
    requires(D& dataset, std::span<const size_t> indices, std::span<std::byte* const> columns) {
  { dataset.gather(indices, columns) } -> std::same_as<bool>;
};

// What the loader tells a dataset, told to it, or to those that it is made of.
template <class D>
void tell_epoch(D& dataset, int64_t epoch) {
  if constexpr (requires { dataset.set_epoch(epoch); }) {
    dataset.set_epoch(epoch);
  } else if constexpr (requires { dataset.for_each_member([](auto&) {}); }) {
    dataset.for_each_member([epoch](auto& member) { tell_epoch(member, epoch); });
  }
}
template <class D>
void tell_worker(D& dataset, const WorkerInfo& info) {
  if constexpr (OpensInWorker<D>) {
    dataset.open_in_worker(info);
  } else if constexpr (requires { dataset.for_each_member([](auto&) {}); }) {
    dataset.for_each_member([&info](auto& member) { tell_worker(member, info); });
  }
}
template <class D>
void tell_end(D& dataset) {
  if constexpr (ClosesInWorker<D>) {
    dataset.close_in_worker();
  } else if constexpr (requires { dataset.for_each_member([](auto&) {}); }) {
    dataset.for_each_member([](auto& member) { tell_end(member); });
  }
}

}  // namespace stoker::detail
