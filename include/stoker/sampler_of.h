// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/sampler.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <type_traits>
#include <utility>
#include <vector>

namespace stoker {

namespace detail {

// What a range yields, as a sampler's key: an index, or the indices of a batch.
template <class Element>
struct KeyOf {};
template <std::integral Element>
struct KeyOf<Element> {
  using type = int64_t;
  static type key(Element index) { return static_cast<int64_t>(index); }
};
template <std::ranges::input_range Element>
requires std::integral<std::ranges::range_value_t<Element>>
struct KeyOf<Element> {
  using type = std::vector<int64_t>;
  template <class Batch>
  static type key(Batch&& batch) {
    type indices;
    for (const auto index : batch) indices.push_back(static_cast<int64_t>(index));
    return indices;
  }
};

template <class Range>
concept KeyRange = std::ranges::input_range<Range> && requires {
  typename KeyOf<std::ranges::range_value_t<Range>>::type;
};
template <class Range>
using range_key_t = typename KeyOf<std::ranges::range_value_t<Range>>::type;

// Each epoch, a range of its own.
template <class Make>
class RangeSampler final : public Sampler<range_key_t<std::invoke_result_t<Make&, int64_t>>> {
  using Range = std::remove_cvref_t<std::invoke_result_t<Make&, int64_t>>;

 public:
  RangeSampler(Make make, std::optional<int64_t> size) : make_(std::move(make)), size_(size) {}

  void reset() override {
    at_.reset();
    range_.emplace(std::invoke(make_, next_epoch_++));
    at_.emplace(std::ranges::begin(*range_));
  }
  std::optional<range_key_t<Range>> next() override {
    if (!at_ || *at_ == std::ranges::end(*range_)) return std::nullopt;
    auto key = KeyOf<std::ranges::range_value_t<Range>>::key(**at_);
    ++*at_;
    return key;
  }
  std::optional<int64_t> size() const override { return size_; }
  void skip(int64_t n) override {
    if (at_) std::ranges::advance(*at_, n, std::ranges::end(*range_));
  }
  StateDict state_dict() const override {
    StateDict state;
    state.set("epoch", next_epoch_);
    return state;
  }
  void load_state_dict(const StateDict& state) override { next_epoch_ = state.integer("epoch"); }

 private:
  Make make_;
  std::optional<int64_t> size_;
  int64_t next_epoch_ = 0;
  std::optional<Range> range_;  // of this epoch
  std::optional<std::ranges::iterator_t<Range>> at_;
};

}  // namespace detail

/// A sampler (or batch sampler) over what `make(epoch)` returns, a range of integers (or of ranges
/// of integers); called at the start of each epoch with its number, from 0. An epoch that is
/// resumed is the one it was if `make` depends on that number alone. `size` is what the sampler
/// tells as its size, if anything.
template <class Make>
requires detail::KeyRange<std::invoke_result_t<Make&, int64_t>>
auto sampler_of(Make make, std::optional<int64_t> size = std::nullopt)
    -> std::shared_ptr<Sampler<detail::range_key_t<std::invoke_result_t<Make&, int64_t>>>> {
  return std::make_shared<detail::RangeSampler<Make>>(std::move(make), size);
}

/// A sampler (or batch sampler) over a range, the same in each epoch:
/// `sampler_of(std::vector<int64_t>{7, 1, 7})`, `sampler_of(std::views::iota(5, 9))`. Holds the
/// range by value. Compare any iterable given to Python's loader as `sampler` or `batch_sampler`.
template <std::ranges::forward_range Range>
requires detail::KeyRange<Range> std::shared_ptr<Sampler<detail::range_key_t<Range>>> sampler_of(
    Range range) {
  std::optional<int64_t> size;
  if constexpr (std::ranges::sized_range<Range>) {
    size = static_cast<int64_t>(std::ranges::size(range));
  }
  return sampler_of(
      [held = std::move(range)](int64_t) mutable { return std::ranges::ref_view<Range>(held); },
      size);
}

}  // namespace stoker
