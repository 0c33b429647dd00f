// SPDX-License-Identifier: BSD-3-Clause
#include "loader/batch_source.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "datasets.h"
#include "memory/seed.h"
#include "slot_memory.h"

namespace stoker::detail {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::optional<size_t> no_size() { return std::nullopt; }
BatchSource::DatasetSize sized(size_t size) {
  return [size] { return size; };
}

std::vector<Numbers> rest_of(BatchSource& source) {
  std::vector<Numbers> batches;
  while (auto task = source.next()) batches.push_back(std::move(task->indices));
  return batches;
}
std::vector<Numbers> epoch(BatchSource& source) {
  source.reset();
  return rest_of(source);
}

// Yields these keys in each epoch.
template <class Key>
class Fixed : public Sampler<Key> {
 public:
  explicit Fixed(std::vector<Key> keys) : keys_(std::move(keys)) {}
  void reset() override { next_ = 0; }
  std::optional<Key> next() override {
    if (next_ == keys_.size()) return std::nullopt;
    return keys_[next_++];
  }
  std::optional<int64_t> size() const override { return keys_.size(); }

 private:
  std::vector<Key> keys_;
  size_t next_ = 0;
};
auto fixed(Numbers keys) { return std::make_shared<Fixed<int64_t>>(std::move(keys)); }
auto fixed_batches(std::vector<Numbers> keys) {
  return std::make_shared<Fixed<Numbers>>(std::move(keys));
}

TEST(BatchSourceTest, InOrderUnlessToldOtherwise) {
  const DataLoaderOptions options{.batch_size = 2};
  BatchSource source(options, sized(5));
  EXPECT_EQ(source.batches_per_epoch(), 3);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(epoch(source), ElementsAre(Numbers{0, 1}, Numbers{2, 3}, Numbers{4}));
  }
  EXPECT_FALSE(source.next());
}

TEST(BatchSourceTest, DropsAShortLastBatchIfAsked) {
  const DataLoaderOptions options{.batch_size = 2, .drop_last = true};
  BatchSource source(options, sized(5));
  EXPECT_EQ(source.batches_per_epoch(), 2);
  EXPECT_THAT(epoch(source), ElementsAre(Numbers{0, 1}, Numbers{2, 3}));
}

TEST(BatchSourceTest, AnEmptyDatasetHasEmptyEpochs) {
  for (const bool shuffle : {false, true}) {
    const DataLoaderOptions options{.shuffle = shuffle};
    BatchSource source(options, sized(0));
    EXPECT_EQ(source.batches_per_epoch(), 0);
    EXPECT_THAT(epoch(source), IsEmpty());
  }
}

TEST(BatchSourceTest, FollowsADatasetThatGrows) {
  size_t size = 2;
  const DataLoaderOptions options{.batch_size = 2};
  BatchSource source(options, [&size] { return size; });
  EXPECT_THAT(epoch(source), ElementsAre(Numbers{0, 1}));
  size = 3;
  EXPECT_EQ(source.batches_per_epoch(), 2);
  EXPECT_THAT(epoch(source), ElementsAre(Numbers{0, 1}, Numbers{2}));
}

TEST(BatchSourceTest, ASamplerSaysWhichSamplesAndNeedsNoSize) {
  const DataLoaderOptions options{.batch_size = 2, .sampler = fixed({7, 7, 1})};
  BatchSource source(options, no_size);
  EXPECT_EQ(source.batches_per_epoch(), 2);
  EXPECT_THAT(epoch(source), ElementsAre(Numbers{7, 7}, Numbers{1}));
  EXPECT_THAT(epoch(source), ElementsAre(Numbers{7, 7}, Numbers{1}));
}

TEST(BatchSourceTest, ABatchSamplerSaysWhichBatches) {
  const DataLoaderOptions options{.batch_sampler = fixed_batches({{5}, {1, 2, 3}})};
  BatchSource source(options, sized(6));
  EXPECT_EQ(source.batches_per_epoch(), 2);
  EXPECT_THAT(epoch(source), ElementsAre(Numbers{5}, Numbers{1, 2, 3}));
}

TEST(BatchSourceTest, WithoutASamplerTheDatasetNeedsASize) {
  for (const bool shuffle : {false, true}) {
    const DataLoaderOptions options{.shuffle = shuffle};
    EXPECT_EQ(text_of<std::invalid_argument>([&] { BatchSource(options, no_size); }),
              "stoker: the dataset has no size; give a sampler or a batch_sampler, or let size() "
              "return how many samples there are");
  }
}

TEST(BatchSourceTest, IndicesThatTheDatasetDoesNotHaveAreNamed) {
  const auto error = [](int64_t index, const BatchSource::DatasetSize& size) {
    const DataLoaderOptions options{.sampler = fixed({index})};
    BatchSource source(options, size);
    source.reset();
    return text_of<std::out_of_range>([&] { source.next(); });
  };
  EXPECT_EQ(error(6, sized(6)), "stoker: the sampler yielded index 6 for a dataset of 6 samples");
  EXPECT_EQ(error(-1, sized(6)), "stoker: the sampler yielded index -1 for a dataset of 6 samples");
  EXPECT_EQ(error(-1, no_size), "stoker: the sampler yielded index -1, which is negative");
  EXPECT_EQ(error(5, sized(6)), "nothing was thrown");
  EXPECT_EQ(error(INT64_MAX, no_size), "nothing was thrown");
}

TEST(BatchSourceTest, ABatchWithoutIndicesIsRefused) {
  const DataLoaderOptions options{.batch_sampler = fixed_batches({{1}, {}})};
  BatchSource source(options, sized(6));
  source.reset();
  EXPECT_TRUE(source.next());
  EXPECT_EQ(text_of<std::invalid_argument>([&] { source.next(); }),
            "stoker: the batch_sampler yielded a batch without indices");
}

TEST(BatchSourceTest, SkipsWhatWasDelivered) {
  const DataLoaderOptions options{.batch_size = 2};
  BatchSource source(options, sized(5));
  source.reset();
  source.deliver({0, 2});
  const StateDict place = source.place();
  source.reset();
  source.resume(place);
  const auto task = source.next();
  EXPECT_EQ(task->indices, (Numbers{2, 3}));
  EXPECT_EQ(task->position, 2U);
  EXPECT_THAT(rest_of(source), ElementsAre(Numbers{4}));
}

TEST(BatchSourceTest, WhatIsGivenBackComesFirst) {
  const DataLoaderOptions options{.batch_size = 2};
  BatchSource source(options, sized(5));
  source.reset();
  Task first = *source.next();
  Task second = *source.next();
  source.give_back(std::move(second));
  source.give_back(std::move(first));
  EXPECT_THAT(rest_of(source), ElementsAre(Numbers{0, 1}, Numbers{2, 3}, Numbers{4}));
}

TEST(BatchSourceTest, WithoutSomeOfItsSamplesABatchIsFilledUpByTheNext) {
  const DataLoaderOptions options{.batch_size = 3, .drop_last = true, .on_error = OnError::kSkip};
  BatchSource source(options, sized(11));
  source.reset();
  Task first = *source.next();
  EXPECT_EQ(source.next()->indices, (Numbers{3, 4, 5}));
  source.give_back(Task::of({3, 4, 5}, 3));
  first.indices = {0, 2};
  first.positions = {0, 2};
  first.num_samples = 2;
  source.give_back(first);
  const auto task = source.next();
  EXPECT_EQ(task->indices, (Numbers{0, 2, 3}));
  EXPECT_EQ(task->positions, (std::vector<uint64_t>{0, 2, 3}));
  EXPECT_EQ(task->end(), 4u);
  EXPECT_THAT(rest_of(source), ElementsAre(Numbers{4, 5, 6}, Numbers{7, 8, 9}));
  // The short one is kept for batches that lose samples.
  source.give_back(Task::of({8, 9}, 8));
  EXPECT_THAT(rest_of(source), ElementsAre(Numbers{8, 9, 10}));
}

TEST(BatchSourceTest, WhatASamplerThrowsComesAgainBehindWhatIsGivenBack) {
  const DataLoaderOptions options{.sampler = fixed({1, 9, 2})};
  BatchSource source(options, sized(6));
  source.reset();
  Task first = *source.next();
  EXPECT_THROW(source.next(), std::out_of_range);
  source.give_back(std::move(first));
  EXPECT_EQ(source.next()->indices, (Numbers{1}));
  EXPECT_THROW(source.next(), std::out_of_range);
}

TEST(BatchSourceTest, APlaceThatNoEpochHasIsRefused) {
  const auto refused = [](const DataLoaderOptions& options, int64_t batches, int64_t samples) {
    BatchSource source(options, sized(10));
    source.reset();
    StateDict place;
    place.set("batches", batches);
    place.set("samples", samples);
    try {
      source.check({}, place);
      return false;
    } catch (const std::invalid_argument&) {
      return true;
    }
  };
  const DataLoaderOptions plain{.batch_size = 4};
  EXPECT_FALSE(refused(plain, 2, 8));
  EXPECT_FALSE(refused(plain, 3, 10));
  EXPECT_TRUE(refused(plain, int64_t{1} << 62, 8));
  EXPECT_TRUE(refused(plain, 2, 9));
  EXPECT_TRUE(refused(plain, 4, 16));
  const DataLoaderOptions skips{.batch_size = 4, .on_error = OnError::kSkip};
  EXPECT_FALSE(refused(skips, 1, 7));
  EXPECT_TRUE(refused(skips, 8, 7));
  EXPECT_TRUE(refused({.batch_sampler = fixed_batches({{1}})}, int64_t{1} << 62, 3));
}

TEST(BatchSourceTest, ASamplerTakesPartInTheState) {
  struct Epochs final : Fixed<int64_t> {
    Epochs() : Fixed({1}) {}
    int64_t epoch = 0;
    void reset() override {
      Fixed::reset();
      ++epoch;
    }
    StateDict state_dict() const override {
      StateDict state;
      state.set("epoch", epoch);
      return state;
    }
    void load_state_dict(const StateDict& state) override { epoch = state.integer("epoch"); }
  };
  const auto sampler = std::make_shared<Epochs>();
  const DataLoaderOptions options{.sampler = sampler};
  BatchSource source(options, sized(6));
  epoch(source);
  const StateDict state = source.state_dict();
  epoch(source);
  source.load_state_dict(state);
  EXPECT_EQ(sampler->epoch, 1);
}

TEST(BatchSourceTest, AStateOfOtherBatchesIsRefused) {
  const DataLoaderOptions threes{.batch_size = 3};
  const DataLoaderOptions fours{.batch_size = 4};
  BatchSource three(threes, sized(6));
  BatchSource four(fours, sized(6));
  BatchSource more(threes, sized(7));
  EXPECT_EQ(text_of<std::invalid_argument>([&] { four.check(three.state_dict(), {}); }),
            "stoker: the state is one of a loader whose batch_size is 3, and here it is 4");
  EXPECT_EQ(text_of<std::invalid_argument>([&] { more.check(three.state_dict(), {}); }),
            "stoker: the state is one of a loader whose dataset_size is 6, and here it is 7");
}

}  // namespace
}  // namespace stoker::detail
