// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The datasets of configurations, and a loader over each.

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <stoker/datasets/tensor.h>

#include <array>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "combination_loader.h"

namespace stoker::combination {

struct Item {
  at::Tensor values;
  std::string text;
  std::map<std::string, double> extras;
  int64_t index;
};
using Pair = std::tuple<at::Tensor, int64_t>;
using Rows = std::array<at::Tensor, 2>;

}  // namespace stoker::combination

template <>
struct stoker::SampleTraits<stoker::combination::Item> {
  static constexpr std::array names = {"values", "text", "extras", "index"};
  static auto fields(const stoker::combination::Item& item) {
    return std::tie(item.values, item.text, item.extras, item.index);
  }
};

namespace stoker::combination {

// Makes samples; holds what they may share.
class Maker {
 public:
  explicit Maker(Trouble trouble) : trouble_(std::move(trouble)) {
    const Combination& c = combination();
    if (c.memory == kView) {
      all_ = at::arange(c.samples * c.width, at::kFloat).reshape({c.width, c.samples}).t();
    }
    if (c.memory == kSame) same_ = at::zeros({c.width});
  }

  const Combination& combination() const { return trouble_.combination(); }
  const Trouble& trouble() const { return trouble_; }

  // `extra` is added to all values.
  template <class S>
  S make(int64_t index, double extra = 0) const {
    const double drawn = extra + draw();
    if constexpr (std::is_same_v<S, int64_t>) {
      return index + 1000 * static_cast<int64_t>(drawn * 1000);
    } else if constexpr (std::is_same_v<S, Pair>) {
      return {values(index, drawn), index};
    } else {
      const auto length = static_cast<size_t>(index * 7 % 40);
      return {values(index, drawn), std::string(length, static_cast<char>('a' + index % 26)),
              {{"drawn", drawn}, {"half", 0.5 * static_cast<double>(index)}}, index};
    }
  }

 private:
  double draw() const {
    switch (combination().random) {
      case kTorch: return at::rand({}).item<double>();
      case kRand: return std::rand() % 1000;
      case kSeed: return static_cast<double>(worker_info().value().seed % 1'000'003);
      default: return 0;
    }
  }

  at::Tensor values(int64_t index, double drawn) const {
    const Combination& c = combination();
    if (c.memory == kView) return all_[index];
    if (c.memory == kSame) return same_.fill_(index);
    const int64_t width = c.varying != 0 ? 1 + (c.width + index * 5) % 50 : c.width;
    at::Tensor values = at::arange(width, at::kFloat) + (static_cast<double>(index) + drawn);
    return c.random == kTorch ? values + at::rand({width}) : values;
  }

  Trouble trouble_;
  at::Tensor all_;
  mutable at::Tensor same_;
};

template <class S>
struct MapData {
  Maker maker;

  S get(size_t index) const {
    maker.trouble().meet(static_cast<Number>(index));
    return maker.make<S>(static_cast<int64_t>(index));
  }
  size_t size() const { return static_cast<size_t>(maker.combination().samples); }
};

template <class S>
struct BatchedData : MapData<S> {
  std::vector<S> get_batch(std::span<const size_t> indices) const {
    std::vector<S> samples;
    for (const size_t index : indices) {
      this->maker.trouble().meet(static_cast<Number>(index), indices.size() > 1);
      samples.push_back(this->maker.template make<S>(static_cast<int64_t>(index)));
    }
    return samples;
  }
};

// Its batches are written as a whole, unless something goes wrong.
struct RowsData : TensorDataset<2> {
  Maker maker;

  explicit RowsData(Maker made)
      : TensorDataset(
            at::arange(made.combination().samples * made.combination().width, at::kFloat)
                .reshape({made.combination().samples, made.combination().width}),
            at::arange(made.combination().samples)),
        maker(std::move(made)) {}

  Rows get(size_t index) const {
    maker.trouble().meet(static_cast<Number>(index));
    return TensorDataset::get(index);
  }
  std::vector<Rows> get_batch(std::span<const size_t> indices) const {
    meet(indices);
    return TensorDataset::get_batch(indices);
  }
  bool gather(std::span<const size_t> indices, std::span<std::byte* const> columns) const {
    meet(indices);
    return TensorDataset::gather(indices, columns);
  }

 private:
  void meet(std::span<const size_t> indices) const {
    for (const size_t index : indices) {
      maker.trouble().meet(static_cast<Number>(index), indices.size() > 1);
    }
  }
};

// Shares itself among the workers if the loader does not. Alike in all of them: what it draws when
// it is opened.
template <class S>
class PlainStream {
 public:
  explicit PlainStream(const Maker& maker) : maker_(maker) {
    if (maker.combination().random == kTorch) opened_ = at::rand({}).template item<double>();
    if (maker.combination().shard != 0) return;
    const auto info = worker_info().value();
    step_ = std::max<int64_t>(info.num_workers, 1);
    at_ = info.id;
  }

  std::optional<S> next() {
    if (at_ >= maker_.combination().samples) return std::nullopt;
    const int64_t index = std::exchange(at_, at_ + step_);
    ++position_;
    maker_.trouble().meet(index);
    return maker_.make<S>(index, opened_);
  }

 protected:
  void leave_out(int64_t count) { at_ += step_ * count, position_ += count; }

  Maker maker_;
  double opened_ = 0;
  int64_t step_ = 1;
  int64_t at_ = 0;
  int64_t position_ = 0;
};

template <class Base>
struct Skipping : Base {
  using Base::Base;
  void skip(uint64_t count) { this->leave_out(static_cast<int64_t>(count)); }
};

template <class Base>
struct Stateful : Base {
  using Base::Base;
  StateDict state_dict() const {
    const Number limit = this->maker_.combination().state_throws_at;
    if (limit > 0 && this->position_ >= limit) throw std::runtime_error("no state here;");
    StateDict state;
    state.set("at", this->at_);
    state.set("position", this->position_);
    return state;
  }
  void load_state_dict(const StateDict& state) {
    this->at_ = state.integer("at");
    this->position_ = state.integer("position");
  }
};

template <class Stream>
struct StreamData {
  Maker maker;
  Stream stream() const { return Stream(maker); }
};

// What there is to see of a batch, or of anything in it.
class Look {
 public:
  void add(const at::Tensor& tensor) {
    on_device_ = on_device_ && !tensor.device().is_cpu();
    const at::Tensor dense = tensor.cpu().contiguous();
    for (const int64_t size : dense.sizes()) mix(static_cast<size_t>(size));
    mix({static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()});
    if (dense.scalar_type() != at::kLong) return;
    const auto* numbers = dense.const_data_ptr<int64_t>();
    indices_.assign(numbers, numbers + dense.numel());
  }
  void add(int64_t number) { mix(static_cast<size_t>(number)), indices_ = {number}; }
  void add(double number) { mix(std::hash<double>{}(number)); }
  void add(const std::string& text) { mix(text), mix(text.size()); }
  template <class T>
  void add(const std::vector<T>& all) {
    for (const auto& each : all) add(each);
  }
  template <class T>
  void add(const std::map<std::string, T>& all) {
    for (const auto& [key, value] : all) add(key), add(value);
  }
  void add(const Rows& rows) { add(rows[0]), add(rows[1]); }
  template <class... T>
  void add(const std::tuple<T...>& all) {
    std::apply([&](const auto&... each) { (add(each), ...); }, all);
  }
  void add(const Item& item) { add(SampleTraits<Item>::fields(item)); }
  template <class... T>
  void add(const std::tuple<const T&...>& all) {
    std::apply([&](const auto&... each) { (add(each), ...); }, all);
  }
  template <class Batch>
  void add(const Padded<Batch>& padded) {
    add(padded.sizes);
    add(padded.batch);
  }

  // The numbers that came last are the indices, led by what was drawn.
  Seen seen() const {
    Seen seen{indices_, hash_, on_device_};
    for (Number& index : seen.indices) index %= 1000;
    return seen;
  }

 private:
  void mix(std::string_view bytes) { mix(std::hash<std::string_view>{}(bytes)); }
  void mix(size_t value) { hash_ = (hash_ ^ value) * 0x100000001b3 + (hash_ >> 29); }

  Numbers indices_;
  size_t hash_ = 1;
  bool on_device_ = true;
};

template <class T>
Seen look_at(const T& batch) {
  Look look;
  look.add(batch);
  return look.seen();
}

// A collate_fn: what the samples' bytes are, what it draws, how many there are, their indices.
struct Summary {
  bool draws;

  template <class S>
  std::tuple<at::Tensor, double, at::Tensor> operator()(std::vector<S>& samples) const {
    std::vector<at::Tensor> sums;
    std::vector<int64_t> indices;
    for (const S& sample : samples) {
      const Seen seen = look_at(sample);
      sums.push_back(at::tensor({static_cast<double>(seen.bytes % 1'000'003)}));
      indices.push_back(seen.indices.at(0));
    }
    if (draws) sums.push_back(at::rand({2}, at::kDouble));
    const auto count = static_cast<double>(samples.size());
    return {at::cat(sums), count, at::tensor(indices, at::kLong)};
  }
};

template <class Dataset, class Collate>
class LoaderOf final : public AnyLoader {
  using Loader = DataLoader<Dataset, Collate>;

 public:
  LoaderOf(Dataset dataset, DataLoaderOptions options, Collate collate)
      : loader_(std::move(dataset), std::move(options), std::move(collate)) {}

  bool begin() override {
    at_.reset();
    at_.emplace(loader_.begin());
    return *at_ != loader_.end();
  }
  bool next() override { return ++*at_ != loader_.end(); }
  Seen look() override { return look_at(**at_); }
  std::function<Seen()> take() override {
    const auto batch = std::make_shared<typename Loader::Batch>(std::move(**at_));
    return [batch] { return look_at(*batch); };
  }
  StateDict state() const override { return loader_.state_dict(); }
  void load(const StateDict& state) override { loader_.load_state_dict(state); }
  const LoaderStats& stats() const override { return loader_.stats(); }

 private:
  Loader loader_;
  std::optional<typename Loader::Iterator> at_;
};

template <class Dataset, class Collate>
std::unique_ptr<AnyLoader> loader_of(Dataset dataset, DataLoaderOptions options, Collate collate) {
  return std::make_unique<LoaderOf<Dataset, Collate>>(std::move(dataset), std::move(options),
                                                      std::move(collate));
}

// With the collation that the configuration says.
template <class S, class Dataset>
std::unique_ptr<AnyLoader> loader_with(Dataset dataset, DataLoaderOptions options) {
  const Combination& c = dataset.maker.combination();
  const bool draws = c.collate_draws != 0;
  switch (c.collate) {
    case kPad:
      if constexpr (!std::is_same_v<S, int64_t>) {
        return loader_of(std::move(dataset), std::move(options), PadCollate{});
      }
      break;
    case kFunction: return loader_of(std::move(dataset), std::move(options), Summary{draws});
    case kConvert: return loader_of(std::move(dataset), std::move(options), DefaultConvert{});
    default: break;
  }
  return loader_of(std::move(dataset), std::move(options), DefaultCollate{});
}

}  // namespace stoker::combination
