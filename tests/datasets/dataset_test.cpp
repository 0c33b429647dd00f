// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/data/datasets/base.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "datasets.h"
#include "slot_memory.h"

namespace stoker {
namespace {

using at::Tensor;
using detail::MapFetcher;
using testing::ElementsAre;
using torch::data::Example;

struct MoveOnly {
  std::unique_ptr<int> value = std::make_unique<int>(5);
  int get(size_t index) { return *value + static_cast<int>(index); }
  size_t size() { return 3; }
};

struct ByReference {
  std::vector<std::pair<Tensor, std::string>> samples;
  const std::pair<Tensor, std::string>& get(size_t index) const { return samples.at(index); }
  int64_t size() const { return static_cast<int64_t>(samples.size()); }
};

struct MaybeSized {
  std::optional<size_t> known;
  float get(size_t) const { return 0; }
  std::optional<size_t> size() const { return known; }
};

struct Batched {
  int64_t get(size_t index) const { return static_cast<int64_t>(index); }
  std::vector<int64_t> get_batch(std::span<const size_t> indices) const {
    return {indices.begin(), indices.end()};
  }
  size_t size() const { return 3; }
};

// libtorch's own kind of dataset: without a get_batch of its own, and with one.
struct TorchDataset : torch::data::datasets::Dataset<TorchDataset> {
  Example<> get(size_t index) override {
    return {at::full({2}, static_cast<int>(index)), at::zeros({})};
  }
  std::optional<size_t> size() const override { return 7; }
};
struct BatchedTorchDataset
    : torch::data::datasets::Dataset<BatchedTorchDataset, Example<int, int>> {
  Example<int, int> get(size_t index) override { return {static_cast<int>(index), 0}; }
  std::vector<Example<int, int>> get_batch(at::ArrayRef<size_t> indices) override {
    std::vector<Example<int, int>> samples;
    for (const size_t index : indices) samples.emplace_back(static_cast<int>(index), 1);
    return samples;
  }
  std::optional<size_t> size() const override { return 7; }
};
struct Grandchild : BatchedTorchDataset {};

struct NoSize {
  int get(size_t) const { return 0; }
};
struct NoGet {
  size_t size() const { return 0; }
};
struct NoSample {
  void* get(size_t) const { return nullptr; }
  size_t size() const { return 0; }
};
struct Nothing {
  void get(size_t) const {}
  size_t size() const { return 0; }
};
struct TextSize {
  int get(size_t) const { return 0; }
  std::string size() const { return "3"; }
};
struct OtherBatches {
  int get(size_t) const { return 0; }
  std::vector<Tensor> get_batch(std::span<const size_t>) const { return {}; }
  size_t size() const { return 0; }
};

static_assert(MapDataset<MoveOnly> && !std::is_copy_constructible_v<MoveOnly>);
static_assert(MapDataset<ByReference> && MapDataset<MaybeSized> && MapDataset<Counting>);
static_assert(MapDataset<TorchDataset> && MapDataset<BatchedTorchDataset>);
static_assert(!MapDataset<NoSize> && !MapDataset<NoGet> && !MapDataset<NoSample>);
static_assert(!MapDataset<Nothing> && !MapDataset<TextSize> && !MapDataset<int>);

static_assert(BatchedDataset<Batched> && BatchedDataset<BatchedTorchDataset>);
static_assert(BatchedDataset<Grandchild>);
static_assert(!BatchedDataset<Counting> && !BatchedDataset<TorchDataset>);
static_assert(MapDataset<OtherBatches> && !BatchedDataset<OtherBatches>);

static_assert(std::is_same_v<SampleOf<ByReference>, std::pair<Tensor, std::string>>);
static_assert(std::is_same_v<SampleOf<TorchDataset>, Example<>>);
static_assert(
    std::is_same_v<DataLoader<ByReference>::Batch, std::pair<Tensor, std::vector<std::string>>>);

int as_int(const detail::FlatSample& sample, size_t leaf = 0) {
  int value = 0;
  std::memcpy(&value, sample.leaves().at(leaf).number.data(), sizeof value);
  return value;
}

TEST(MapFetcherTest, TakesADatasetThatCanOnlyBeMoved) {
  MapFetcher fetcher{MoveOnly()};
  EXPECT_EQ(fetcher.size(), 3u);
  EXPECT_FALSE(fetcher.whole_batches());
  EXPECT_EQ(as_int(fetcher.get(2)), 7);
  *fetcher.dataset().value = 10;
  EXPECT_EQ(as_int(fetcher.get(2)), 12);
}

TEST(MapFetcherTest, SizesOfEveryKind) {
  EXPECT_EQ(MapFetcher(ByReference{{{}, {}}}).size(), 2u);
  EXPECT_EQ(MapFetcher(MaybeSized{4}).size(), 4u);
  EXPECT_EQ(MapFetcher(MaybeSized{}).size(), std::nullopt);
  EXPECT_EQ(MapFetcher(TorchDataset()).size(), 7u);
}

TEST(MapFetcherTest, TheSampleOutlivesTheCall) {
  const auto letters = [](size_t i) { return std::string(100, static_cast<char>('a' + i)); };
  MapFetcher fetcher(Made(9, letters));
  EXPECT_EQ(fetcher.get(1).leaves().at(0).text, std::string(100, 'b'));
  EXPECT_EQ(fetcher.get(2).leaves().at(0).text, std::string(100, 'c'));
}

TEST(MapFetcherTest, NamesTheLeavesOfTheSampleHandedOutLast) {
  MapFetcher fetcher(Made(9, [](size_t i) { return std::vector<int>(i); }));
  fetcher.get(2);
  EXPECT_THAT(fetcher.leaf_paths(), ElementsAre("[0]", "[1]"));
  fetcher.get(1);
  EXPECT_THAT(fetcher.leaf_paths(), ElementsAre("[0]"));
}

TEST(MapFetcherTest, FetchesWholeBatches) {
  MapFetcher fetcher{BatchedTorchDataset()};
  EXPECT_TRUE(fetcher.whole_batches());
  ASSERT_EQ(fetcher.fetch(std::vector<size_t>{4, 2}), 2u);
  EXPECT_EQ(as_int(fetcher.fetched(0)), 4);
  EXPECT_EQ(as_int(fetcher.fetched(1)), 2);
  EXPECT_EQ(as_int(fetcher.fetched(1), 1), 1);
  EXPECT_THAT(fetcher.leaf_paths(), ElementsAre(".data", ".target"));
  fetcher.release();
  EXPECT_ANY_THROW(fetcher.fetched(0));
}

TEST(MapFetcherTest, ReleaseDropsTheSample) {
  const Tensor kept = at::ones({2});
  MapFetcher fetcher(ByReference{{{kept, "x"}}});
  const auto before = kept.use_count();
  fetcher.get(0);
  EXPECT_EQ(kept.use_count(), before + 1);
  fetcher.release();
  EXPECT_EQ(kept.use_count(), before);
}

}  // namespace
}  // namespace stoker
