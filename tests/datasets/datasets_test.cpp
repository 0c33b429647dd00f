// SPDX-License-Identifier: BSD-3-Clause

// Datasets that are made of other datasets.

#include "datasets.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/datasets/concat.h>
#include <stoker/datasets/stack.h>
#include <stoker/datasets/subset.h>
#include <stoker/datasets/transformed.h>

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace stoker {

struct Portrait {
  at::Tensor image;
  int64_t person;
};
template <>
struct SampleTraits<Portrait> {
  static auto fields(const Portrait& portrait) { return std::tie(portrait.image, portrait.person); }
};

namespace {

using at::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;

using Indices = std::vector<size_t>;

// Samples first, first + 1, .. of a dataset that can only be moved.
struct Movable {
  std::unique_ptr<int64_t> first;
  size_t count;

  int64_t get(size_t index) const { return *first + static_cast<int64_t>(index); }
  size_t size() const { return count; }
};
Movable movable(int64_t first, size_t count) { return {std::make_unique<int64_t>(first), count}; }

// The same in whole batches, which are counted; a `short_by` leaves some samples out.
struct Batched : Movable {
  std::shared_ptr<int> batches = std::make_shared<int>();
  size_t short_by = 0;

  std::vector<int64_t> get_batch(std::span<const size_t> indices) const {
    ++*batches;
    std::vector<int64_t> samples;
    for (const size_t index : indices.first(indices.size() - short_by)) {
      samples.push_back(get(index));
    }
    return samples;
  }
};
Batched batched(int64_t first, size_t count) { return {movable(first, count)}; }

struct Unsized {
  int64_t get(size_t) const { return 0; }
  std::optional<size_t> size() const { return std::nullopt; }
};

template <class Action>
std::string refusal(Action action) {
  return text_of<std::invalid_argument>(action);
}
template <class Dataset>
std::string out_of_range(Dataset& dataset, size_t index) {
  return text_of<std::out_of_range>([&] { dataset.get(index); });
}

TEST(StackDatasetTest, PutsSamplesOfTheSameIndexTogether) {
  StackDataset tuples(movable(0, 5), Made{5, [](size_t i) { return std::to_string(i); }});
  EXPECT_EQ(tuples.size(), 5u);
  EXPECT_EQ(tuples.get(3), std::tuple(3, std::string("3")));
  static_assert(MapDataset<decltype(tuples)> && !BatchedDataset<decltype(tuples)>);

  auto structs =
      stack<Portrait>(Made{5, [](size_t i) { return at::full({2}, int64_t(i)); }}, movable(100, 5));
  const Portrait portrait = structs.get(2);
  EXPECT_EQ(numbers(portrait.image), (Numbers{2, 2}));
  EXPECT_EQ(portrait.person, 102);

  std::map<std::string, Movable> parts;
  parts.emplace("left", movable(0, 3));
  parts.emplace("right", movable(10, 3));
  NamedStackDataset named(std::move(parts));
  EXPECT_EQ(named.size(), 3u);
  EXPECT_EQ(named.get(1), (std::map<std::string, int64_t>{{"left", 1}, {"right", 11}}));
  static_assert(!BatchedDataset<decltype(named)>);
}

TEST(StackDatasetTest, FetchesABatchFromEachThatCan) {
  Batched whole = batched(0, 5);
  const auto batches = whole.batches;
  StackDataset dataset(std::move(whole), movable(10, 5));
  static_assert(BatchedDataset<decltype(dataset)>);
  EXPECT_THAT(dataset.get_batch(Indices{4, 1}), ElementsAre(std::tuple(4, 14), std::tuple(1, 11)));
  EXPECT_EQ(*batches, 1);

  std::map<std::string, Batched> parts;
  parts.emplace("a", batched(0, 5));
  parts.emplace("b", batched(20, 5));
  NamedStackDataset named(std::move(parts));
  using Sample = std::map<std::string, int64_t>;
  EXPECT_THAT(named.get_batch(Indices{4, 1}),
              ElementsAre(Sample{{"a", 4}, {"b", 24}}, Sample{{"a", 1}, {"b", 21}}));
}

TEST(StackDatasetTest, RefusesOtherSizes) {
  EXPECT_EQ(
      refusal([] { StackDataset(Counting{3}, Counting{3}, Counting{5}); }),
      "stoker: dataset 2 of the StackDataset has 5 samples, and dataset 0 has 3; all must have "
      "the same number");
  EXPECT_EQ(refusal([] { NamedStackDataset(std::map<std::string, Counting>{}); }),
            "stoker: a StackDataset needs one dataset at least");
  EXPECT_THAT(refusal([] {
                NamedStackDataset(std::map<std::string, Counting>{{"a", {1}}, {"b", {2}}});
              }),
              HasSubstr("dataset 1 of the StackDataset has 2 samples"));
  EXPECT_EQ(refusal([] { StackDataset(Counting{3}, Unsized()); }),
            "stoker: a dataset of a StackDataset has no size");
}

TEST(StackDatasetTest, RefusesIndicesItDoesNotHaveAndShortBatches) {
  StackDataset dataset(batched(0, 5), Counting{5});
  EXPECT_EQ(out_of_range(dataset, 5), "stoker: a StackDataset of 5 samples was asked for sample 5");
  EXPECT_EQ(text_of<std::out_of_range>([&] {
              dataset.get_batch(Indices{0, 7});
            }),
            "stoker: a StackDataset of 5 samples was asked for sample 7");
  Batched wanting = batched(0, 5);
  wanting.short_by = 1;
  StackDataset other(std::move(wanting), Counting{5});
  EXPECT_EQ(text_of<std::length_error>([&] {
              other.get_batch(Indices{0, 1});
            }),
            "stoker: get_batch returned 1 samples for 2 indices");
}

template <class Dataset>
Numbers all_of(Dataset& dataset) {
  Numbers all;
  for (size_t i = 0; i < dataset.size(); ++i) all.push_back(dataset.get(i));
  return all;
}

TEST(ConcatDatasetTest, YieldsOneDatasetAfterAnother) {
  std::vector<Movable> parts;
  parts.push_back(movable(0, 3));
  parts.push_back(movable(100, 0));
  parts.push_back(movable(10, 1));
  parts.push_back(movable(20, 2));
  ConcatDataset one_type(std::move(parts));
  EXPECT_THAT(all_of(one_type), ElementsAre(0, 1, 2, 10, 20, 21));
  static_assert(!BatchedDataset<decltype(one_type)>);

  ConcatDataset several_types(movable(5, 2), Counting{0}, Counting{1}, movable(7, 1));
  EXPECT_THAT(all_of(several_types), ElementsAre(5, 6, 0, 7));
  EXPECT_EQ(several_types.size(), 4u);
}

TEST(ConcatDatasetTest, FetchesOneBatchFromEachThatCanAndKeepsTheOrder) {
  Batched first = batched(0, 4);
  Batched last = batched(100, 4);
  const auto batches = first.batches;
  last.batches = batches;
  ConcatDataset dataset(std::move(first), movable(50, 2), std::move(last));
  static_assert(BatchedDataset<decltype(dataset)>);
  EXPECT_THAT(dataset.get_batch(Indices{9, 0, 4, 6, 0, 3, 5}),
              ElementsAre(103, 0, 50, 100, 0, 3, 51));
  EXPECT_EQ(*batches, 2);
  EXPECT_THAT(dataset.get_batch(Indices{1}), ElementsAre(1));
  EXPECT_EQ(*batches, 3);
}

TEST(ConcatDatasetTest, RefusesWhatIsNotThere) {
  ConcatDataset dataset(batched(0, 5), Counting{5});
  EXPECT_EQ(out_of_range(dataset, 11),
            "stoker: a ConcatDataset of 10 samples was asked for sample 11");
  EXPECT_THAT(text_of<std::out_of_range>([&] { dataset.get_batch(Indices{10}); }),
              HasSubstr("asked for sample 10"));
  EXPECT_EQ(refusal([] { ConcatDataset(std::vector<Counting>{}); }),
            "stoker: a ConcatDataset needs one dataset at least");
  EXPECT_EQ(refusal([] { ConcatDataset(Counting{1}, Unsized()); }),
            "stoker: a dataset of a ConcatDataset has no size");
}

TEST(SubsetTest, YieldsTheSamplesOfItsIndices) {
  const Subset subset(movable(100, 10), {7, 0, 7});
  EXPECT_EQ(subset.size(), 3u);
  EXPECT_THAT(all_of(subset), ElementsAre(107, 100, 107));
  static_assert(!BatchedDataset<decltype(subset)>);
}

TEST(SubsetTest, OfASubsetSharesTheDataset) {
  const auto whole = std::make_shared<Movable>(movable(0, 10));
  const Subset evens(whole, {0, 2, 4, 6, 8});
  const Subset some(evens, {4, 1});
  EXPECT_THAT(all_of(some), ElementsAre(8, 2));
  EXPECT_EQ(evens.dataset(), whole);
  EXPECT_EQ(some.dataset()->dataset(), whole);
  EXPECT_THAT(some.indices(), ElementsAre(4, 1));
}

TEST(SubsetTest, ForwardsBatchedFetches) {
  Batched whole = batched(0, 10);
  const auto batches = whole.batches;
  Subset subset(std::move(whole), {9, 8, 7});
  static_assert(BatchedDataset<decltype(subset)>);
  Subset again(subset, {2, 0});
  EXPECT_THAT(again.get_batch(Indices{1, 0, 1}), ElementsAre(9, 7, 9));
  EXPECT_EQ(*batches, 1);
}

TEST(SubsetTest, RefusesIndicesThatTheDatasetDoesNotHave) {
  EXPECT_EQ(refusal([] {
              Subset(Counting{3}, {0, 3});
            }),
            "stoker: a Subset was given index 3 for a dataset of 3 samples");
  EXPECT_EQ(refusal([] { Subset(Counting{3}, {-1}); }),
            "stoker: a Subset was given index -1 for a dataset of 3 samples");
  EXPECT_EQ(refusal([] { Subset(Unsized(), {-1}); }),
            "stoker: a Subset was given index -1, which is negative");
  EXPECT_EQ(refusal([] { Subset(std::shared_ptr<Counting>(), {}); }),
            "stoker: a Subset needs a dataset");
  Subset subset(batched(0, 5), {1, 2});
  EXPECT_EQ(out_of_range(subset, 2), "stoker: a Subset of 2 samples was asked for sample 2");
  EXPECT_THAT(text_of<std::out_of_range>([&] { subset.get_batch(Indices{4}); }),
              HasSubstr("asked for sample 4"));
}

TEST(TransformedDatasetTest, YieldsWhatTheFunctionMakesOfSamples) {
  TransformedDataset texts(movable(5, 3), [](int64_t number) { return std::to_string(number); });
  EXPECT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts.get(2), "7");
  TransformedDataset sizes(std::move(texts), [](const std::string& text) { return text.size(); });
  EXPECT_EQ(sizes.get(0), 1u);
  EXPECT_EQ(*sizes.dataset().dataset().first, 5);
  static_assert(MapDataset<decltype(sizes)> && !BatchedDataset<decltype(sizes)>);
}

TEST(TransformedDatasetTest, ForwardsBatchedFetches) {
  Batched whole = batched(0, 10);
  const auto batches = whole.batches;
  TransformedDataset doubled(std::move(whole), [](int64_t number) { return 2 * number; });
  static_assert(BatchedDataset<decltype(doubled)>);
  EXPECT_THAT(doubled.get_batch(Indices{3, 9}), ElementsAre(6, 18));
  EXPECT_EQ(*batches, 1);
}

// The elements of a std::vector<bool> are none.
TEST(DatasetsTest, SamplesMayBeBools) {
  struct Odd : Counting {
    bool get(size_t index) const { return index % 2 == 1; }
    std::vector<bool> get_batch(std::span<const size_t> indices) const {
      std::vector<bool> samples;
      for (const size_t index : indices) samples.push_back(get(index));
      return samples;
    }
  };
  const Indices indices = {1, 0, 4};
  EXPECT_THAT(ConcatDataset(Odd{{3}}, Odd{{2}}).get_batch(indices), ElementsAre(true, false, true));
  EXPECT_THAT(Subset(Odd{{9}}, {2, 3, 5, 7, 8}).get_batch(indices),
              ElementsAre(true, false, false));
  EXPECT_EQ(std::get<1>(StackDataset(Counting{5}, Odd{{5}}).get_batch(indices)[0]), true);
  EXPECT_THAT(TransformedDataset(Odd{{5}}, std::logical_not<bool>()).get_batch(indices),
              ElementsAre(false, true, true));
}

// A pile of all of them, through loaders: the same bytes whether fetched one by one or in batches,
// by however many workers.
TEST(DatasetsTest, FeedALoaderOneByOneOrInBatches) {
  const auto one_by_one = [](auto make_part) {
    std::vector<std::string> epochs;
    for (const int64_t workers : {0, 2}) {
      ConcatDataset all(StackDataset(Subset(make_part(0, 20), {3, 1, 4, 1, 5}), Counting{5}),
                        StackDataset(Subset(make_part(50, 9), {8, 0}), Counting{2}));
      DataLoader loader(TransformedDataset(std::move(all),
                                           [](const std::tuple<int64_t, int64_t>& sample) {
                                             return std::get<0>(sample) * 10 + std::get<1>(sample);
                                           }),
                        {.batch_size = 3, .shuffle = true, .num_workers = workers, .seed = 11});
      std::string text;
      for (const int64_t number : epoch_of(loader)) text += std::to_string(number) + " ";
      epochs.push_back(text);
    }
    EXPECT_EQ(epochs[0], epochs[1]);
    return epochs[0];
  };
  EXPECT_EQ(one_by_one([](int64_t first, size_t count) { return movable(first, count); }),
            one_by_one([](int64_t first, size_t count) { return batched(first, count); }));
}

}  // namespace
}  // namespace stoker
