// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Generator.h>
#include <stoker/detail/members.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace stoker {

namespace detail {

// Throws std::invalid_argument.
void check_subset(const void* dataset, std::span<const int64_t> indices,
                  std::optional<size_t> size);
[[noreturn]] void refuse_null_split();

}  // namespace detail

/// Some of a dataset's samples: sample i is the dataset's sample indices[i]. Copies of a Subset
/// share the dataset. Compare `torch.utils.data.Subset`.
template <MapDataset Dataset>
class Subset {
 public:
  /// Throws `std::invalid_argument` for a null dataset, or an index that it does not have (Python
  /// does when the sample is asked for).
  Subset(std::shared_ptr<Dataset> dataset, std::vector<int64_t> indices)
      : dataset_(std::move(dataset)), indices_(std::move(indices)) {
    detail::check_subset(dataset_.get(), indices_,
                         dataset_ ? detail::size_of(*dataset_) : std::nullopt);
  }
  Subset(Dataset dataset, std::vector<int64_t> indices)
      : Subset(std::make_shared<Dataset>(std::move(dataset)), std::move(indices)) {}

  /// Throws `std::out_of_range`.
  decltype(auto) get(size_t index) const { return dataset_->get(mapped(index)); }
  std::vector<SampleOf<Dataset>> get_batch(std::span<const size_t> indices) const requires
      BatchedDataset<Dataset> {
    return detail::fetch_all(*dataset_, mapped(indices));
  }
  size_t size() const { return indices_.size(); }

  /// For the loader; see TensorDataset.
  bool gather(std::span<const size_t> indices, std::span<std::byte* const> columns)
      const requires detail::GatheringDataset<Dataset> {
    return dataset_->gather(mapped(indices), columns);
  }

  /// For the loader, which tells them of epochs and workers.
  template <class Tell>
  void for_each_member(Tell tell) {
    tell(*dataset_);
  }

  const std::shared_ptr<Dataset>& dataset() const { return dataset_; }
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  size_t mapped(size_t index) const {
    if (index >= indices_.size()) detail::refuse_index("Subset", index, indices_.size());
    return static_cast<size_t>(indices_[index]);
  }
  std::vector<size_t> mapped(std::span<const size_t> indices) const {
    std::vector<size_t> all;
    all.reserve(indices.size());
    for (const size_t index : indices) all.push_back(mapped(index));
    return all;
  }

  std::shared_ptr<Dataset> dataset_;
  std::vector<int64_t> indices_;
};

/// How `random_split` divides: integers are numbers of samples, floating-point numbers fractions of
/// all. `{700, 300}`, `{0.7, 0.3}`.
class SplitLengths {
 public:
  template <class Length>
  requires std::integral<Length> || std::floating_point<Length> SplitLengths(
      std::initializer_list<Length> lengths)  // NOLINT(google-explicit-constructor)
      : lengths_(make(std::span<const Length>(lengths.begin(), lengths.size()))) {}
  template <class Length>
  requires std::integral<Length> || std::floating_point<Length> SplitLengths(
      const std::vector<Length>& lengths)  // NOLINT(google-explicit-constructor)
      : lengths_(make(std::span<const Length>(lengths))) {}

  /// The indices of each part, in random order. Fractions of `size` samples are rounded down; the
  /// first parts get one more of those that are left. Throws `std::invalid_argument` for lengths
  /// that do not add up to `size`, or fractions that do not add up to 1, and for negative ones.
  std::vector<std::vector<int64_t>> split(size_t size,
                                          const std::optional<at::Generator>& generator) const;

 private:
  using Counts = std::vector<int64_t>;
  using Fractions = std::vector<double>;

  template <class Length>
  static std::variant<Counts, Fractions> make(std::span<const Length> lengths) {
    if constexpr (std::integral<Length>) {
      return Counts(lengths.begin(), lengths.end());
    } else {
      return Fractions(lengths.begin(), lengths.end());
    }
  }

  std::variant<Counts, Fractions> lengths_;
};

/// Divides a dataset at random into Subsets that have no sample in common, and shares it between
/// them. The order is drawn from the generator (torch's default one, if absent), and is that of
/// `torch.utils.data.random_split`. Warns of fractions so small that a part is empty. Throws
/// `std::invalid_argument`, see SplitLengths, and for a dataset that is null or has no size.
template <MapDataset Dataset>
std::vector<Subset<Dataset>> random_split(std::shared_ptr<Dataset> dataset,
                                          const SplitLengths& lengths,
                                          const std::optional<at::Generator>& generator = {}) {
  if (!dataset) detail::refuse_null_split();
  const size_t size = detail::known_size_of(*dataset, "random_split");
  std::vector<Subset<Dataset>> parts;
  for (auto& indices : lengths.split(size, generator)) {
    parts.emplace_back(dataset, std::move(indices));
  }
  return parts;
}
template <MapDataset Dataset>
std::vector<Subset<Dataset>> random_split(Dataset dataset, const SplitLengths& lengths,
                                          const std::optional<at::Generator>& generator = {}) {
  return random_split(std::make_shared<Dataset>(std::move(dataset)), lengths, generator);
}

}  // namespace stoker
