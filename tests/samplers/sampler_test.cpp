// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/sampler.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "datasets.h"
#include "memory/seed.h"
#include "samplers.h"
#include "slot_memory.h"

namespace stoker {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(SequentialSamplerTest, CountsUpEachEpoch) {
  SequentialSampler sampler(4);
  EXPECT_EQ(sampler.size(), 4);
  EXPECT_THAT(epoch(sampler), ElementsAre(0, 1, 2, 3));
  EXPECT_FALSE(sampler.next());
  EXPECT_THAT(epoch(sampler), ElementsAre(0, 1, 2, 3));
}

TEST(SamplerTest, OneOfTheUsersSkipsByAskingForEach) {
  struct Fives final : Sampler<int64_t> {
    int64_t left = 0;
    void reset() override { left = 5; }
    std::optional<int64_t> next() override {
      return left == 0 ? std::nullopt : std::optional(left--);
    }
    std::optional<int64_t> size() const override { return 5; }
  } fives;
  EXPECT_THAT(rest(fives, 2), ElementsAre(3, 2, 1));
  EXPECT_THAT(rest(fives, 9), IsEmpty());
  EXPECT_TRUE(fives.state_dict().empty());
}

TEST(SamplerTest, EachSkipsToWhereItWouldBe) {
  SequentialSampler sequential(1000);
  RandomSampler random(1000, at::make_generator<at::CPUGeneratorImpl>(3));
  const StateDict state = random.state_dict();
  const auto order = epoch(random);
  for (const int64_t skipped : {0, 1, 300, 999, 1000, 5000}) {
    const auto from = std::min<int64_t>(skipped, 1000);
    EXPECT_EQ(rest(sequential, skipped).size(), static_cast<size_t>(1000 - from));
    random.load_state_dict(state);
    EXPECT_EQ(rest(random, skipped), std::vector<int64_t>(order.begin() + from, order.end()));
  }
}

TEST(SamplerTest, BatchesAreSkippedWhole) {
  BatchSampler batches(std::make_shared<SequentialSampler>(10), 4, false);
  EXPECT_THAT(rest(batches, 1), ElementsAre(ElementsAre(4, 5, 6, 7), ElementsAre(8, 9)));
  EXPECT_THAT(rest(batches, 3), IsEmpty());
}

TEST(SamplerTest, ARandomOrderGoesOnFromItsStateEpochByEpoch) {
  for (const bool own : {false, true}) {
    const auto make = [&] {
      return own ? RandomSampler(50, at::make_generator<at::CPUGeneratorImpl>(9))
                 : RandomSampler(50);
    };
    RandomSampler sampler = make();
    epoch(sampler);
    const StateDict state = sampler.state_dict();
    const auto second = epoch(sampler);
    const auto third = epoch(sampler);
    RandomSampler other = make();
    other.load_state_dict(state);
    EXPECT_EQ(epoch(other), second) << own;
    EXPECT_EQ(epoch(other), third) << own;
  }
}

TEST(SamplerTest, MoreCanBeSkippedThanThereIs) {
  constexpr int64_t kFar = int64_t{1} << 62;
  const auto sequential = std::make_shared<SequentialSampler>(10);
  BatchSampler batches(sequential, 4, false);
  RandomSampler permuted(10, false, 35), drawn(10, true, 35), none(0);
  EXPECT_THAT(rest(*sequential, kFar), IsEmpty());
  EXPECT_THAT(rest(batches, kFar), IsEmpty());
  EXPECT_THAT(rest(permuted, kFar), IsEmpty());
  EXPECT_THAT(rest(drawn, kFar), IsEmpty());
  EXPECT_THAT(rest(none, kFar), IsEmpty());
}

TEST(SequentialSamplerTest, MayBeEmptyButNotLess) {
  SequentialSampler sampler(0);
  EXPECT_THAT(epoch(sampler), IsEmpty());
  EXPECT_EQ(text_of<std::invalid_argument>([] { SequentialSampler(-1); }),
            "stoker: a sampler's size is -1; it must be 0 or more");
}

TEST(SequentialSamplerTest, StartsAnewInTheMiddleOfAnEpoch) {
  SequentialSampler sampler(3);
  sampler.reset();
  sampler.next();
  EXPECT_THAT(epoch(sampler), ElementsAre(0, 1, 2));
}

// Vectors of PyTorch 2.13: manual_seed(0), range(10), shuffle=True, an epoch's seed drawn first.
TEST(RandomSamplerTest, DrawsPythonsOrdersFromTheDefaultGenerator) {
  at::manual_seed(0);
  RandomSampler sampler(10);
  const std::vector<Numbers> expected = {{6, 7, 1, 4, 2, 0, 9, 8, 3, 5},
                                         {2, 4, 7, 0, 8, 9, 5, 3, 6, 1},
                                         {7, 4, 5, 1, 9, 3, 8, 2, 0, 6}};
  for (const Numbers& order : expected) {
    detail::draw_seed({});
    EXPECT_EQ(epoch(sampler), order);
  }
}

// Of a loader with generator=manual_seed(42).
TEST(RandomSamplerTest, DrawsPythonsOrdersFromAGenerator) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(42);
  RandomSampler sampler(10, generator);
  const std::vector<Numbers> expected = {{6, 5, 4, 0, 8, 9, 2, 1, 3, 7},
                                         {3, 6, 5, 8, 9, 4, 2, 0, 7, 1}};
  for (const Numbers& order : expected) {
    detail::draw_seed(generator);
    EXPECT_EQ(epoch(sampler), order);
  }
}

TEST(RandomSamplerTest, DrawsAtTheFirstKeyNotBefore) {
  at::manual_seed(0);
  RandomSampler sampler(10);
  sampler.reset();
  detail::draw_seed({});
  EXPECT_EQ(sampler.next(), 6);  // as if the epoch's seed had been drawn first
}

// torch::randperm, whose order is drawn here index by index.
TEST(RandomSamplerTest, OrdersAnySizeAsRandpermDoes) {
  for (const int64_t size : {0, 1, 2, 3, 17, 1000, 65537}) {
    at::manual_seed(size);
    RandomSampler sampler(size);
    for (int i = 0; i < 3; ++i) {
      const at::Generator before = at::detail::getDefaultCPUGenerator().clone();
      const auto seeded = at::make_generator<at::CPUGeneratorImpl>(detail::draw_seed(before));
      const at::Tensor order = at::randperm(size, seeded, at::TensorOptions(at::kLong));
      const auto* indices = order.const_data_ptr<int64_t>();
      EXPECT_EQ(epoch(sampler), Numbers(indices, indices + size)) << size;
    }
  }
}

TEST(RandomSamplerTest, AnEpochLeftEarlyChangesNoLaterOne) {
  const auto second_epoch = [](int taken) {
    at::manual_seed(3);
    RandomSampler sampler(10);
    sampler.reset();
    for (int i = 0; i < taken; ++i) EXPECT_TRUE(sampler.next());
    return epoch(sampler);
  };
  EXPECT_EQ(second_epoch(1), second_epoch(10));
}

TEST(RandomSamplerTest, AGeneratorLeavesTheDefaultOneAlone) {
  at::manual_seed(5);
  RandomSampler sampler(10, at::make_generator<at::CPUGeneratorImpl>(1));
  epoch(sampler);
  const uint64_t after = detail::draw_seed({});
  at::manual_seed(5);
  EXPECT_EQ(detail::draw_seed({}), after);
}

TEST(RandomSamplerTest, YieldsEveryIndexOnce) {
  RandomSampler sampler(1000, at::make_generator<at::CPUGeneratorImpl>(7));
  EXPECT_EQ(sampler.size(), 1000);
  Numbers one = epoch(sampler);
  Numbers other = epoch(sampler);
  EXPECT_NE(one, other);
  EXPECT_FALSE(sampler.next());
  EXPECT_FALSE(sampler.next());
  std::ranges::sort(one);
  std::ranges::sort(other);
  EXPECT_EQ(one, up_to(1000));
  EXPECT_EQ(other, up_to(1000));
}

TEST(RandomSamplerTest, AskingAgainPastTheEndChangesNoLaterEpoch) {
  const auto second_epoch = [](int asked) {
    RandomSampler sampler(10, at::make_generator<at::CPUGeneratorImpl>(7));
    epoch(sampler);
    for (int i = 0; i < asked; ++i) EXPECT_FALSE(sampler.next());
    return epoch(sampler);
  };
  EXPECT_EQ(second_epoch(0), second_epoch(3));
}

TEST(RandomSamplerTest, MayBeEmptyButNotLess) {
  RandomSampler sampler(0);
  EXPECT_THAT(epoch(sampler), IsEmpty());
  EXPECT_THAT(text_of<std::invalid_argument>([] { RandomSampler(-3); }), HasSubstr("size is -3"));
}

// Vectors of PyTorch 2.13.
TEST(RandomSamplerTest, MoreSamplesThanThereAreFollowFromOnePermutationAfterAnother) {
  RandomSampler sampler(10, false, 23, at::make_generator<at::CPUGeneratorImpl>(42));
  EXPECT_EQ(sampler.size(), 23);
  EXPECT_EQ(epoch(sampler),
            (Numbers{2, 6, 1, 8, 4, 5, 0, 9, 3, 7, 3, 5, 8, 9, 4, 6, 1, 0, 7, 2, 7, 5, 0}));
}

// A later epoch begins where torch::randint left the generator.
TEST(RandomSamplerTest, WithReplacementItDrawsAsRandintDoes) {
  for (const int64_t size :
       {int64_t{1}, int64_t{10}, (int64_t{1} << 28) - 1, int64_t{1} << 28, int64_t{1} << 40}) {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(size);
    RandomSampler sampler(size, true, 77, generator.clone());
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(epoch(sampler), numbers(at::randint(size, {77}, generator, at::kLong))) << size;
    }
  }
}

TEST(RandomSamplerTest, WithoutAGeneratorItDrawsOneSeedForAllSamples) {
  at::manual_seed(6);
  RandomSampler sampler(10, true, 50);
  const auto drawn = epoch(sampler);
  const uint64_t next_seed = detail::draw_seed({});
  at::manual_seed(6);
  const auto seeded = at::make_generator<at::CPUGeneratorImpl>(detail::draw_seed({}));
  EXPECT_EQ(drawn, numbers(at::randint(10, {50}, seeded, at::kLong)));
  EXPECT_EQ(detail::draw_seed({}), next_seed);
}

TEST(RandomSamplerTest, SkipsAndResumesInAnyOfItsWays) {
  for (const bool replacement : {false, true}) {
    for (const bool own : {false, true}) {
      for (const int64_t num_samples : {3, 10, 11, 30}) {
        RandomSampler sampler(
            10, replacement, num_samples,
            own ? std::optional(at::make_generator<at::CPUGeneratorImpl>(8)) : std::nullopt);
        const StateDict state = sampler.state_dict();
        const auto order = epoch(sampler);
        const auto later = epoch(sampler);
        for (const int64_t skipped : {0, 2, 9, 10, 11, 20, 29, 30, 99}) {
          sampler.load_state_dict(state);
          const auto from = std::min<int64_t>(skipped, num_samples);
          EXPECT_EQ(rest(sampler, skipped), Numbers(order.begin() + from, order.end()));
          EXPECT_EQ(epoch(sampler), later);
        }
      }
    }
  }
}

TEST(RandomSamplerTest, AnEpochOfBillionsOfDrawsTakesButASeedFromItsGenerator) {
  for (const bool replacement : {false, true}) {
    for (const int64_t num_samples : {int64_t{4'000'000'000}, INT64_MAX}) {
      const at::Generator given = at::make_generator<at::CPUGeneratorImpl>(5);
      RandomSampler own(1000, replacement, num_samples, given), other(1000, replacement, 2000);
      at::manual_seed(5);
      own.reset();
      other.reset();
      for (int i = 0; i < 2000; ++i) ASSERT_EQ(own.next(), other.next());
      ASSERT_EQ(detail::draw_seed(given), detail::draw_seed({}));
    }
  }
  RandomSampler only(1, false, INT64_MAX, at::make_generator<at::CPUGeneratorImpl>(5));
  only.reset();
  EXPECT_EQ(only.next(), 0);
}

TEST(RandomSamplerTest, AnOrderThatMemoryCannotHoldIsRefusedAtEachTry) {
  for (const bool own : {false, true}) {
    const auto given = at::make_generator<at::CPUGeneratorImpl>(5);
    RandomSampler sampler(1'000'000'000'000, own ? std::optional(given) : std::nullopt);
    sampler.reset();
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(
          text_of<std::runtime_error>([&] { sampler.next(); }),
          AllOf(StartsWith("stoker: the order of 1000000000000 samples takes 7.276 TB of memory, "
                           "and "),
                EndsWith(" is available; use KeyedRandomSampler, which needs none")));
    }
    EXPECT_EQ(detail::draw_seed(given),
              detail::draw_seed(at::make_generator<at::CPUGeneratorImpl>(5)));
  }
  EXPECT_THAT(text_of<std::runtime_error>([] { RandomSampler(INT64_MAX).next(); }),
              HasSubstr("use KeyedRandomSampler"));
}

TEST(RandomSamplerTest, NumSamplesIsPositiveAndTheyAreThere) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { RandomSampler(5, true, 0); }),
            "stoker: num_samples is 0; it must be 1 or more");
  EXPECT_EQ(text_of<std::invalid_argument>([] { RandomSampler(5, false, -2); }),
            "stoker: num_samples is -2; it must be 1 or more");
  EXPECT_EQ(text_of<std::invalid_argument>([] { RandomSampler(0, true, 3); }),
            "stoker: num_samples is 3, and there are no samples to draw them from");
  RandomSampler none(0, true);
  EXPECT_THAT(epoch(none), IsEmpty());
}

std::vector<size_t> batch_sizes(int64_t samples, int64_t batch_size, bool drop_last) {
  BatchSampler sampler(std::make_shared<SequentialSampler>(samples), batch_size, drop_last);
  std::vector<size_t> sizes;
  Numbers all;
  for (const Numbers& batch : epoch(sampler)) {
    sizes.push_back(batch.size());
    all.insert(all.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(all, up_to(static_cast<int64_t>(all.size())));
  EXPECT_EQ(sampler.size(), static_cast<int64_t>(sizes.size()));
  return sizes;
}

TEST(BatchSamplerTest, GroupsWhatTheSamplerYields) {
  EXPECT_THAT(batch_sizes(100, 25, false), ElementsAre(25, 25, 25, 25));
  EXPECT_THAT(batch_sizes(100, 33, false), ElementsAre(33, 33, 33, 1));
  EXPECT_THAT(batch_sizes(3, 5, false), ElementsAre(3));
  EXPECT_THAT(batch_sizes(3, INT64_MAX, false), ElementsAre(3));
}

TEST(BatchSamplerTest, DropsAShortLastBatchIfAsked) {
  EXPECT_THAT(batch_sizes(100, 25, true), ElementsAre(25, 25, 25, 25));
  EXPECT_THAT(batch_sizes(100, 33, true), ElementsAre(33, 33, 33));
  EXPECT_THAT(batch_sizes(3, 5, true), IsEmpty());
}

TEST(BatchSamplerTest, NoSamplesNoBatches) {
  EXPECT_THAT(batch_sizes(0, 5, false), IsEmpty());
  EXPECT_THAT(batch_sizes(0, 5, true), IsEmpty());
}

TEST(BatchSamplerTest, EachEpochIsOneOfTheSamplers) {
  BatchSampler sampler(std::make_shared<SequentialSampler>(3), 2, false);
  EXPECT_THAT(epoch(sampler), ElementsAre(Numbers{0, 1}, Numbers{2}));
  EXPECT_FALSE(sampler.next());
  EXPECT_THAT(epoch(sampler), ElementsAre(Numbers{0, 1}, Numbers{2}));
}

// Does not tell its size.
class Endless : public Sampler<int64_t> {
 public:
  void reset() override {}
  std::optional<int64_t> next() override { return 8; }
  std::optional<int64_t> size() const override { return std::nullopt; }
};

TEST(BatchSamplerTest, KnowsItsSizeIfTheSamplerDoes) {
  BatchSampler sampler(std::make_shared<Endless>(), 2, false);
  EXPECT_FALSE(sampler.size());
  sampler.reset();
  EXPECT_THAT(sampler.next(), testing::Optional(ElementsAre(8, 8)));
}

TEST(BatchSamplerTest, RefusesWhatCannotBe) {
  const auto some = std::make_shared<SequentialSampler>(3);
  EXPECT_EQ(text_of<std::invalid_argument>([&] { BatchSampler(some, 0, false); }),
            "stoker: batch_size is 0; it must be 1 or more");
  EXPECT_THAT(text_of<std::invalid_argument>([&] { BatchSampler(some, -2, false); }),
              HasSubstr("batch_size is -2"));
  EXPECT_EQ(text_of<std::invalid_argument>([] { BatchSampler(nullptr, 2, false); }),
            "stoker: BatchSampler needs a sampler");
}

}  // namespace
}  // namespace stoker
