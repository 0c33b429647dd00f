// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/detail/members.h>

#include <concepts>
#include <cstddef>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace stoker {

namespace detail {

// Where the samples of datasets lie that follow one another.
class Offsets {
 public:
  struct Place {
    size_t dataset;
    size_t index;
  };

  void add(size_t size) { ends_.push_back(total() + size); }
  size_t total() const { return ends_.empty() ? 0 : ends_.back(); }
  // Throws std::out_of_range.
  Place find(size_t index) const;

 private:
  std::vector<size_t> ends_;
};

[[noreturn]] void refuse_empty_concat();

}  // namespace detail

/// The samples of some datasets, one after another: a vector of datasets of one type, or datasets
/// of several types whose samples are of the same type, `ConcatDataset{photos, drawings}`. Compare
/// `torch.utils.data.ConcatDataset`.
template <MapDataset... Datasets>
requires(sizeof...(Datasets) > 0) class ConcatDataset {
  using Member = std::variant<Datasets...>;

 public:
  using Sample = SampleOf<std::variant_alternative_t<0, Member>>;
  static_assert((std::same_as<SampleOf<Datasets>, Sample> && ...),
                "the samples of a ConcatDataset's datasets must be of the same type");

  /// Throws `std::invalid_argument` for a dataset without a size.
  explicit ConcatDataset(Datasets... datasets) {
    [&]<size_t... I>(std::index_sequence<I...>) {
      (members_.emplace_back(std::in_place_index<I>, std::move(datasets)), ...);
    }
    (std::index_sequence_for<Datasets...>{});
    add_up();
  }
  /// Throws `std::invalid_argument` for an empty vector, or a dataset without a size.
  template <MapDataset D>
  requires(sizeof...(Datasets) == 1 &&
           (std::same_as<D, Datasets> && ...)) explicit ConcatDataset(std::vector<D> datasets) {
    if (datasets.empty()) detail::refuse_empty_concat();
    for (D& dataset : datasets) members_.emplace_back(std::in_place_index<0>, std::move(dataset));
    add_up();
  }

  /// Throws `std::out_of_range`.
  Sample get(size_t index) {
    const auto [dataset, its_index] = offsets_.find(index);
    return std::visit([i = its_index](auto& member) -> Sample { return member.get(i); },
                      members_[dataset]);
  }
  /// One batch of each dataset that has samples in it.
  std::vector<Sample> get_batch(std::span<const size_t> indices)  //
      requires(BatchedDataset<Datasets> || ...) {
    std::vector<std::vector<size_t>> parts(members_.size());
    for (const size_t index : indices) {
      const auto [dataset, its_index] = offsets_.find(index);
      parts[dataset].push_back(its_index);
    }
    std::vector<std::vector<Sample>> fetched(members_.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].empty()) continue;
      fetched[i] = std::visit([&](auto& member) { return detail::fetch_all(member, parts[i]); },
                              members_[i]);
    }
    std::vector<size_t> taken(members_.size());
    std::vector<Sample> samples;
    samples.reserve(indices.size());
    for (const size_t index : indices) {
      const size_t dataset = offsets_.find(index).dataset;
      samples.push_back(std::move(fetched[dataset][taken[dataset]++]));
    }
    return samples;
  }
  size_t size() const { return offsets_.total(); }

  /// For the loader, which tells them of epochs and workers.
  template <class Tell>
  void for_each_member(Tell tell) {
    for (Member& member : members_) std::visit(tell, member);
  }

 private:
  void add_up() {
    for (Member& member : members_) {
      offsets_.add(std::visit(
          [](auto& dataset) { return detail::known_size_of(dataset, "ConcatDataset"); }, member));
    }
  }

  std::vector<Member> members_;
  detail::Offsets offsets_;
};

template <MapDataset D>
ConcatDataset(std::vector<D>) -> ConcatDataset<D>;

}  // namespace stoker
