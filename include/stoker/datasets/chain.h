// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/dataset.h>

#include <cstddef>
#include <optional>
#include <tuple>
#include <utility>

namespace stoker {

/// The streams of several datasets, one after the other. Their samples have one type. Compare
/// Python's `ChainDataset`.
template <IterableDataset First, IterableDataset... Rest>
requires(std::same_as<StreamSampleOf<First>, StreamSampleOf<Rest>>&&...) class ChainDataset {
  using Datasets = std::tuple<First, Rest...>;
  static constexpr size_t kCount = 1 + sizeof...(Rest);

 public:
  using Sample = StreamSampleOf<First>;

  explicit ChainDataset(First first, Rest... rest)
      : datasets_(std::move(first), std::move(rest)...) {}

  class Stream {
   public:
    explicit Stream(Datasets& datasets) : datasets_(&datasets) {}
    std::optional<Sample> next() { return next_from<0>(); }

   private:
    template <size_t I>
    std::optional<Sample> next_from() {
      if constexpr (I == kCount) {
        return std::nullopt;
      } else {
        if (turn_ > I) return next_from<I + 1>();
        auto& stream = std::get<I>(streams_);
        if (!stream) stream.emplace(std::get<I>(*datasets_).stream());
        if (std::optional<Sample> sample = stream->next()) return sample;
        stream.reset();
        turn_ = I + 1;
        return next_from<I + 1>();
      }
    }

    Datasets* datasets_;
    std::tuple<std::optional<StreamOf<First>>, std::optional<StreamOf<Rest>>...> streams_;
    size_t turn_ = 0;  // the dataset whose stream is read
  };
  Stream stream() { return Stream(datasets_); }

  /// The sum, where all of them have a size.
  size_t size() requires(detail::HasSize<First> && (detail::HasSize<Rest> && ...)) {
    return std::apply([](auto&... all) { return (static_cast<size_t>(all.size()) + ...); },
                      datasets_);
  }

  /// For the loader, which tells them of epochs and workers.
  template <class Tell>
  void for_each_member(Tell tell) {
    std::apply([&](auto&... each) { (tell(each), ...); }, datasets_);
  }

 private:
  Datasets datasets_;
};

template <class... Datasets>
ChainDataset(Datasets...) -> ChainDataset<Datasets...>;

}  // namespace stoker
