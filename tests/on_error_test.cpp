// SPDX-License-Identifier: BSD-3-Clause

// Samples that throw, and are skipped or replaced.

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "datasets.h"

namespace stoker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;

// Sample i is i; some throw.
struct Holes {
  int64_t count;
  std::set<int64_t> bad;

  int64_t get(size_t index) const {
    const auto i = static_cast<int64_t>(index);
    if (bad.contains(i)) throw std::runtime_error("sample " + std::to_string(i) + " is broken");
    return i;
  }
  size_t size() const { return static_cast<size_t>(count); }
};

Numbers indices(const std::vector<BadSample>& bad) {
  Numbers all;
  for (const BadSample& one : bad) all.push_back(one.index);
  std::sort(all.begin(), all.end());
  return all;
}

DataLoaderOptions skipping(int64_t workers, int64_t batch_size = 3) {
  return {.batch_size = batch_size, .num_workers = workers, .on_error = OnError::kSkip};
}

TEST(SkipTest, SamplesThatFailAreLeftOutAndThoseBehindMoveUp) {
  for (const int64_t workers : {0, 1, 3}) {
    DataLoader loader(Holes{10, {1, 2, 4}}, skipping(workers));
    for (int epoch = 1; epoch <= 2; ++epoch) {
      EXPECT_THAT(batches_of(loader), ElementsAre(Numbers{0, 3, 5}, Numbers{6, 7, 8}, Numbers{9}))
          << workers;
      EXPECT_EQ(loader.stats().errors, 3 * epoch);
    }
    EXPECT_EQ(indices(loader.stats().bad_samples), (Numbers{1, 2, 4}));
    EXPECT_THAT(loader.stats().bad_samples[0].error, HasSubstr("std::runtime_error: sample"));
  }
}

TEST(SkipTest, SamplesThatFillUpMayFailToo) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Holes{8, {1, 6, 7}}, skipping(workers));
    EXPECT_THAT(batches_of(loader), ElementsAre(Numbers{0, 2, 3}, Numbers{4, 5})) << workers;
  }
}

TEST(SkipTest, TheLastBatchIsLeftWithWhatIsGoodOfIt) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Holes{6, {3, 5}}, skipping(workers));
    EXPECT_THAT(batches_of(loader), ElementsAre(Numbers{0, 1, 2}, Numbers{4})) << workers;
    DataLoader none(Holes{4, {0, 1, 2, 3}}, skipping(workers));
    EXPECT_THAT(batches_of(none), IsEmpty()) << workers;
    EXPECT_EQ(none.stats().errors, 4);
  }
}

TEST(SkipTest, AShortLastBatchFillsUpTheOneBeforeAndIsDroppedThen) {
  for (const int64_t workers : {0, 1, 3}) {
    auto options = skipping(workers);
    options.drop_last = true;
    DataLoader loader(Holes{9, {0, 4}}, options);
    EXPECT_THAT(batches_of(loader), ElementsAre(Numbers{1, 2, 3}, Numbers{5, 6, 7})) << workers;
    DataLoader last(Holes{6, {5}}, options);
    EXPECT_THAT(batches_of(last), ElementsAre(Numbers{0, 1, 2})) << workers;
    options.batch_size = 7;
    DataLoader many(Holes{74, {20, 60}}, options);
    EXPECT_EQ(epoch_of(many).size(), 70u) << workers;
  }
}

TEST(SkipTest, EachGoodSampleComesOnceAndTheBatchesDoNotDependOnTheWorkers) {
  std::set<int64_t> bad;
  for (int64_t i = 0; i < 500; i += 7) bad.insert(i);
  const auto run = [&](int64_t workers, int64_t prefetch) {
    auto options = skipping(workers, 16);
    options.shuffle = true;
    options.seed = 9;
    if (workers > 0) options.prefetch_factor = prefetch;
    DataLoader loader(Holes{500, bad}, options);
    auto batches = batches_of(loader);
    for (const Numbers& batch : batches_of(loader)) batches.push_back(batch);
    return batches;
  };
  const auto alone = run(0, 0);
  EXPECT_EQ(run(1, 1), alone);
  EXPECT_EQ(run(3, 2), alone);
  EXPECT_EQ(run(2, 50), alone);
  Numbers seen;
  for (size_t i = 0; i < alone.size() / 2; ++i) {
    seen.insert(seen.end(), alone[i].begin(), alone[i].end());
  }
  Numbers good;
  for (int64_t i = 0; i < 500; ++i) {
    if (!bad.contains(i)) good.push_back(i);
  }
  EXPECT_THAT(seen, UnorderedElementsAreArray(good));
}

// Where its place among the samples that come is another one, its randomness is the same.
TEST(SkipTest, TheRandomnessOfASampleDoesNotDependOnThoseThatFail) {
  const auto epoch = [](std::set<int64_t> bad, int64_t workers) {
    auto options = skipping(workers, 4);
    options.seed = 5;
    const auto draws = Made{40, [bad](size_t index) {
                              if (bad.contains(static_cast<int64_t>(index))) throw 1;
                              return std::pair(static_cast<int64_t>(index),
                                               at::randint(1 << 30, {}, at::kLong));
                            }};
    DataLoader loader(draws, options);
    std::map<int64_t, int64_t> drawn;
    for (auto& [index, values] : loader) {
      for (size_t i = 0; i < numbers(index).size(); ++i) {
        drawn[numbers(index)[i]] = numbers(values)[i];
      }
    }
    return drawn;
  };
  auto all = epoch({}, 0);
  for (const int64_t index : {3, 4, 17, 38}) all.erase(index);
  for (const int64_t workers : {0, 1, 3}) EXPECT_EQ(epoch({3, 4, 17, 38}, workers), all) << workers;
}

TEST(SkipTest, TakesNoMoreOfTheSamplerThanIsNeeded) {
  struct Endless final : Sampler<int64_t> {
    int64_t next_index = 0;
    void reset() override { next_index = 0; }
    std::optional<int64_t> next() override { return next_index++; }
    std::optional<int64_t> size() const override { return std::nullopt; }
  };
  for (const int64_t workers : {0, 2}) {
    const auto sampler = std::make_shared<Endless>();
    auto options = skipping(workers, 4);
    options.sampler = sampler;
    DataLoader loader(Holes{int64_t{1} << 40, {2, 3, 11}}, options);
    auto batch = loader.begin();
    EXPECT_EQ(numbers(*batch), (Numbers{0, 1, 4, 5}));
    EXPECT_EQ(numbers(*++batch), (Numbers{6, 7, 8, 9}));
    EXPECT_EQ(numbers(*++batch), (Numbers{10, 12, 13, 14}));
    EXPECT_LT(sampler->next_index, 10'000);
  }
}

TEST(SkipTest, WhatTheSamplerThrowsComesBehindTheBatchesBefore) {
  struct Breaks final : Sampler<int64_t> {
    int64_t next_index = 0;
    void reset() override { next_index = 0; }
    std::optional<int64_t> next() override {
      if (next_index == 9) throw std::logic_error("no more");
      return next_index++;
    }
    std::optional<int64_t> size() const override { return std::nullopt; }
  };
  for (const int64_t workers : {0, 2}) {
    auto options = skipping(workers, 2);
    options.sampler = std::make_shared<Breaks>();
    DataLoader loader(Holes{20, {1}}, options);
    Numbers seen;
    EXPECT_THROW(
        for (auto& batch : loader) {
          for (const int64_t index : numbers(batch)) seen.push_back(index);
        },
        std::logic_error);
    EXPECT_EQ(seen, (Numbers{0, 2, 3, 4, 5, 6})) << workers;
  }
}

TEST(SkipTest, GoesOnInAnEpochThatIsResumed) {
  const Holes dataset{20, {0, 1, 4, 9, 13}};
  for (const int64_t workers : {0, 2}) {
    DataLoader undisturbed(dataset, skipping(workers));
    const auto all = batches_of(undisturbed);
    for (size_t taken = 1; taken < all.size(); ++taken) {
      DataLoader loader(dataset, skipping(workers));
      auto batch = loader.begin();
      for (size_t i = 1; i < taken; ++i) ++batch;
      DataLoader other(dataset, skipping(2 - workers));
      other.load_state_dict(loader.state_dict());
      EXPECT_EQ(batches_of(other), std::vector(all.begin() + static_cast<long>(taken), all.end()))
          << taken;
    }
  }
}

TEST(SubstituteTest, TheNextGoodSampleOfTheBatchTakesThePlace) {
  for (const int64_t workers : {0, 1, 3}) {
    DataLoader loader(Holes{8, {1, 3, 4, 7}},
                      {.batch_size = 4, .num_workers = workers, .on_error = OnError::kSubstitute});
    EXPECT_THAT(batches_of(loader), ElementsAre(Numbers{0, 2, 2, 0}, Numbers{5, 5, 6, 5}))
        << workers;
    EXPECT_EQ(indices(loader.stats().bad_samples), (Numbers{1, 3, 4, 7}));
  }
}

TEST(SubstituteTest, ABatchWithoutAnyGoodSampleIsAnError) {
  DataLoader loader(Holes{4, {0, 1}},
                    {.batch_size = 2, .num_workers = 1, .on_error = OnError::kSubstitute});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().index, 0);
  EXPECT_THAT(error->what(), HasSubstr("sample 0 is broken"));
}

TEST(OnErrorTest, WholeBatchesThatThrowAreFetchedOneByOne) {
  struct Whole : Holes {
    std::vector<int64_t> get_batch(std::span<const size_t> wanted) const {
      std::vector<int64_t> all;
      for (const size_t index : wanted) all.push_back(get(index));
      return all;
    }
  };
  for (const int64_t workers : {0, 2}) {
    DataLoader skips(Whole{{5, {1}}}, skipping(workers, 2));
    EXPECT_THAT(batches_of(skips), ElementsAre(Numbers{0, 2}, Numbers{3, 4}));
    DataLoader substitutes(
        Whole{{4, {1}}},
        {.batch_size = 2, .num_workers = workers, .on_error = OnError::kSubstitute});
    EXPECT_THAT(batches_of(substitutes), ElementsAre(Numbers{0, 0}, Numbers{2, 3}));
  }
}

// A small tensor is written to the batch late, when the fetch that it came of may be gone.
TEST(OnErrorTest, SmallTensorsOfWholeBatchesThatThrowAreThoseOfTheirSamples) {
  struct Whole {
    size_t size() const { return 64; }
    at::Tensor get(size_t index) const {
      if (index % 9 == 4) throw std::runtime_error("broken");
      return at::full({16}, static_cast<int64_t>(index), at::kLong);
    }
    std::vector<at::Tensor> get_batch(std::span<const size_t> wanted) const {
      std::vector<at::Tensor> all;
      for (const size_t index : wanted) all.push_back(get(index));
      return all;
    }
  };
  for (const OnError on_error : {OnError::kSkip, OnError::kSubstitute}) {
    for (const int64_t workers : {0, 2}) {
      DataLoader loader(Whole{},
                        {.batch_size = 8, .num_workers = workers, .on_error = on_error});
      for (auto& batch : loader) {
        EXPECT_TRUE(at::equal(batch, batch.select(1, 0).unsqueeze(1).expand_as(batch)));
        for (const int64_t index : numbers(batch.select(1, 0))) {
          EXPECT_TRUE(index >= 0 && index < 64 && index % 9 != 4) << index;
        }
      }
    }
  }
}

TEST(OnErrorTest, EachSampleThatIsReplacedIsCounted) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Made{300, [](size_t index) {
                             if (index % 100 != 7) throw std::runtime_error("broken");
                             return static_cast<int64_t>(index);
                           }},
                      {.batch_size = 100, .num_workers = workers, .on_error = OnError::kSubstitute});
    batches_of(loader);
    EXPECT_EQ(loader.stats().errors, 3 * 99) << workers;
  }
}

// What was left out of batches that are only on their way is not told yet.
TEST(OnErrorTest, ErrorsAreCountedWithTheBatchThatTheyConcern) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Holes{40, {3, 30}}, skipping(workers, 5));
    auto batch = loader.begin();
    EXPECT_EQ(loader.stats().errors, 1);
    while (!(++batch == loader.end())) {
    }
    EXPECT_EQ(loader.stats().errors, 2);
  }
}

TEST(OnErrorTest, IsToldInTheStatistics) {
  DataLoader loader(Holes{4, {1}}, skipping(0));
  batches_of(loader);
  std::ostringstream text;
  text << loader.stats();
  EXPECT_THAT(text.str(), HasSubstr("; samples skipped or replaced: 1"));
}

TEST(OnErrorTest, WhatCannotBeIsRefused) {
  const auto text = [](DataLoaderOptions options) {
    return text_of<std::invalid_argument>([&] { DataLoader(Counting{3}, options); });
  };
  EXPECT_EQ(text({.batch_sampler = std::make_shared<BatchSampler>(
                      std::make_shared<SequentialSampler>(3), 2, false),
                  .on_error = OnError::kSkip}),
            "stoker: on_error is kSkip with a batch_sampler, whose batches are not to be filled up "
            "with others' samples; use kSubstitute");
  EXPECT_EQ(text({.on_error = OnError::kSubstitute}),
            "stoker: on_error is kSubstitute with batch_size = 1, where a batch has no other "
            "sample; use kSkip");
  struct Empty {
    struct Stream {
      std::optional<int64_t> next() { return std::nullopt; }
    };
    Stream stream() const { return {}; }
  };
  EXPECT_EQ(
      text_of<std::invalid_argument>([] { DataLoader(Empty{}, {.on_error = OnError::kSkip}); }),
      "stoker: on_error is not kRaise for a dataset that is a stream: one that threw cannot "
      "go on");
}

}  // namespace
}  // namespace stoker
