// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Says of a type that is no dataset what it lacks.

#include <ATen/core/Tensor.h>
#include <stoker/dataset.h>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace stoker::detail {

template <class D>
concept HasGet = requires(D& dataset, size_t index) {
  dataset.get(index);
};
template <class D>
concept HasStream = requires(D& dataset) {
  *dataset.stream().next();
};

// In the place of a type that is no dataset: the rest of the loader compiles, so that the reason is
// the only error.
struct NoDataset {
  template <class Dataset>
  requires(!std::same_as<std::remove_cvref_t<Dataset>, NoDataset>) NoDataset(Dataset&&);
  at::Tensor get(size_t index);
  size_t size();
};

// `type` is D; to instantiate it is an error if D is no dataset.
template <class D>
struct RequireDataset {
  static_assert(HasGet<D> || HasStream<D>,
                "stoker: a dataset must have get(size_t), which returns a sample, and size(); or "
                "stream(), whose next() returns a std::optional of one; all of them public");
  using type = NoDataset;
};
template <class D>
requires MapDataset<D> || IterableDataset<D>
struct RequireDataset<D> {
  using type = D;
};
template <class D>
requires(HasGet<D> && !HasSize<D> && !IterableDataset<D>) struct RequireDataset<D> {
  static_assert(sizeof(D) == 0, "stoker: a dataset with get(size_t) must have size() too, public");
  using type = NoDataset;
};
template <class D>
requires(HasGet<D>&& HasSize<D> && !MapDataset<D> && !IterableDataset<D>) struct RequireDataset<D> {
  static_assert(Require<std::remove_cvref_t<decltype(std::declval<D&>().get(size_t{}))>,
                        WholeSample>::value);
  using type = NoDataset;
};
template <class D>
requires(!HasGet<D> && HasStream<D> && !IterableDataset<D>) struct RequireDataset<D> {
  static_assert(Require<std::remove_cvref_t<decltype(*std::declval<D&>().stream().next())>,
                        WholeSample>::value);
  using type = NoDataset;
};

}  // namespace stoker::detail
