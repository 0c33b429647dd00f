// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/collate.h>
#include <stoker/dataset.h>
#include <stoker/detail/core.h>
#include <stoker/detail/members.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace stoker::detail {

// A dataset and how its samples are collated, wrapped for the core: what datasets of both kinds
// have in common.
template <class Dataset, class Sample, class Collate>
class DatasetFetcher : public Fetcher {
 public:
  using Batch = CollatedBatch<Collate, Sample>;

  DatasetFetcher(Dataset dataset, Collate collate)
      : dataset_(std::move(dataset)), collate_(std::move(collate)) {}

  Dataset& dataset() { return dataset_; }
  AnyDataset any_dataset() override { return {&dataset_, &typeid(Dataset)}; }

  std::optional<size_t> size() override {
    if constexpr (requires { static_cast<size_t>(dataset_.size()); }) {
      return static_cast<size_t>(dataset_.size());
    } else if constexpr (HasSize<Dataset>) {
      return dataset_.size();  // of torch::data's datasets, an optional
    } else {
      return std::nullopt;
    }
  }

  void open_in_worker(const WorkerInfo& info) override { tell_worker(dataset_, info); }
  void close_in_worker() override { tell_end(dataset_); }
  void set_epoch(int64_t epoch) override { tell_epoch(dataset_, epoch); }

  BatchForm form() const override {
    if constexpr (std::same_as<Collate, DefaultCollate>) return BatchForm::kStacked;
    if constexpr (std::same_as<Collate, DefaultConvert>) return BatchForm::kSingle;
    return BatchForm::kCollated;
  }
  const FlatSample& collate([[maybe_unused]] std::vector<BatchLeaves>& leaves) override {
    if constexpr (kCollates) {
      std::vector<Sample> samples;
      for (BatchLeaves& sample : leaves) samples.push_back(Codec<Sample>::take(sample));
      collated_.emplace(collate_(samples));
      return flatten_as(*collated_);
    } else {
      throw std::logic_error("stoker: there is nothing to collate with");
    }
  }
  // Main: the batch of what the core hands out.
  static Batch gather(BatchLeaves& leaves) {
    if constexpr (std::same_as<Collate, DefaultCollate>)
      return Codec<Sample>::gather(leaves);
    else
      return Codec<Batch>::take(leaves);
  }

  std::vector<std::string> leaf_paths() override {
    LeafPaths paths;
    if constexpr (kCollates) {
      if (last_ == nullptr) {
        Codec<Batch>::flatten(*collated_, paths);
        return paths.take();
      }
    }
    Codec<Sample>::flatten(*last_, paths);
    return paths.take();
  }
  void release() override { collated_.reset(); }

 protected:
  const FlatSample& flatten(const Sample& sample) {
    last_ = &sample;
    return flatten_by<Codec<Sample>>(sample);
  }
  // Where the next one goes, of two places: the one before is still looked at.
  size_t next_place() const { return 1 - place_; }

  Dataset dataset_;

 private:
  static constexpr bool kCollates =
      !std::same_as<Collate, DefaultCollate> && !std::same_as<Collate, DefaultConvert>;

  const FlatSample& flatten_as(const Batch& batch) {
    last_ = nullptr;
    return flatten_by<Codec<Batch>>(batch);
  }
  template <class CodecOf, class T>
  const FlatSample& flatten_by(const T& value) {
    FlatSample& flat = flat_[next_place()];
    flat.clear();
    CodecOf::flatten(value, flat);
    place_ = next_place();
    return flat;
  }

  Collate collate_;
  std::optional<Batch> collated_;
  const Sample* last_ = nullptr;  // null: the batch that was collated
  std::array<FlatSample, 2> flat_;
  size_t place_ = 0;
};

template <MapDataset Dataset, class Collate = DefaultCollate>
class MapFetcher final : public DatasetFetcher<Dataset, SampleOf<Dataset>, Collate> {
  using Base = DatasetFetcher<Dataset, SampleOf<Dataset>, Collate>;
  using Sample = SampleOf<Dataset>;

 public:
  explicit MapFetcher(Dataset dataset, Collate collate = {})
      : Base(std::move(dataset), std::move(collate)) {}

  bool whole_batches() const override { return BatchedDataset<Dataset>; }

  const FlatSample& get(size_t index) override {
    auto& single = single_[this->next_place()];
    single.emplace(this->dataset_.get(index));
    return this->flatten(*single);
  }
  size_t fetch([[maybe_unused]] std::span<const size_t> indices) override {
    if constexpr (BatchedDataset<Dataset>) {
      batch_ = this->dataset_.get_batch(indices);
    }
    return batch_.size();
  }
  const FlatSample& fetched(size_t i) override { return this->flatten(batch_.at(i)); }
  bool gathers_rows() const override { return GatheringDataset<Dataset>; }
  bool gather_rows([[maybe_unused]] std::span<const size_t> indices,
                   [[maybe_unused]] std::span<std::byte* const> columns) override {
    if constexpr (GatheringDataset<Dataset>) return this->dataset_.gather(indices, columns);
    return false;
  }
  void release() override {
    Base::release();
    for (auto& single : single_) single.reset();
    batch_.clear();
  }

 private:
  std::array<std::optional<Sample>, 2> single_;
  std::vector<Sample> batch_;
};

template <class Dataset>
MapFetcher(Dataset) -> MapFetcher<Dataset, DefaultCollate>;

template <IterableDataset Dataset, class Collate = DefaultCollate>
class StreamFetcher final : public DatasetFetcher<Dataset, StreamSampleOf<Dataset>, Collate> {
  using Base = DatasetFetcher<Dataset, StreamSampleOf<Dataset>, Collate>;
  using Sample = StreamSampleOf<Dataset>;
  using Stream = StreamOf<Dataset>;

 public:
  explicit StreamFetcher(Dataset dataset, Collate collate = {})
      : Base(std::move(dataset), std::move(collate)) {}

  bool is_stream() const override { return true; }

  void open_stream([[maybe_unused]] const std::string& state) override {
    stream_.reset();  // the old one may look at the dataset too
    stream_.emplace(this->dataset_.stream());
    if constexpr (StatefulStream<Stream>) {
      if (!state.empty()) stream_->load_state_dict(StateDict::from_json(state));
    }
  }
  const FlatSample* next() override {
    single_.reset();
    single_ = stream_->next();
    return single_ ? &this->flatten(*single_) : nullptr;
  }
  void skip(uint64_t samples) override {
    if constexpr (requires { stream_->skip(samples); }) {
      stream_->skip(samples);
    } else {
      while (samples > 0 && stream_->next()) --samples;
    }
  }
  std::string stream_state() override {
    if constexpr (StatefulStream<Stream>) return stream_->state_dict().to_json();
    return {};
  }
  void release() override {
    Base::release();
    single_.reset();
  }

 private:
  std::optional<Stream> stream_;
  std::optional<Sample> single_;
};

template <class Dataset>
StreamFetcher(Dataset) -> StreamFetcher<Dataset, DefaultCollate>;

template <class Dataset, class Collate>
struct FetcherOf;
template <MapDataset Dataset, class Collate>
struct FetcherOf<Dataset, Collate> {
  using type = MapFetcher<Dataset, Collate>;
  using Sample = SampleOf<Dataset>;
};
template <IterableDataset Dataset, class Collate>
struct FetcherOf<Dataset, Collate> {
  using type = StreamFetcher<Dataset, Collate>;
  using Sample = StreamSampleOf<Dataset>;
};

}  // namespace stoker::detail
