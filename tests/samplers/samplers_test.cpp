// SPDX-License-Identifier: BSD-3-Clause
#include "samplers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/samplers.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>
#include <vector>

#include "datasets.h"
#include "memory/seed.h"
#include "support.h"

namespace stoker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

at::Generator seeded(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

// Any sampler goes on where its state says, and skips to where it would be.
template <class Make>
void expect_resumes(Make make) {
  const auto sampler = make();
  epoch(*sampler);
  const StateDict state = sampler->state_dict();
  const auto second = epoch(*sampler);
  const auto third = epoch(*sampler);
  EXPECT_NE(second, third);
  const auto size = static_cast<int64_t>(second.size());
  EXPECT_EQ(sampler->size(), size);
  const StateDict told = StateDict::from_json(state.to_json());
  for (const int64_t skipped : {int64_t{0}, int64_t{1}, size / 2, size - 1, size, size + 7}) {
    const auto other = make();
    other->load_state_dict(told);
    const auto from = std::min(skipped, size);
    EXPECT_EQ(rest(*other, skipped), Numbers(second.begin() + from, second.end())) << skipped;
    EXPECT_FALSE(other->next());
    EXPECT_EQ(epoch(*other), third) << skipped;
  }
}

Numbers sorted(Numbers numbers) {
  std::ranges::sort(numbers);
  return numbers;
}

// A vector of PyTorch 2.13.
TEST(SubsetRandomSamplerTest, DrawsPythonsOrder) {
  SubsetRandomSampler sampler({5, 7, 9, 11}, seeded(42));
  EXPECT_THAT(epoch(sampler), ElementsAre(9, 11, 5, 7));
}

TEST(SubsetRandomSamplerTest, YieldsTheGivenIndicesEachEpoch) {
  const Numbers indices = {3, 3, 1, 40, 5, 2, 17};
  SubsetRandomSampler sampler(indices);
  EXPECT_EQ(sorted(epoch(sampler)), sorted(indices));
  EXPECT_EQ(sorted(epoch(sampler)), sorted(indices));
  SubsetRandomSampler none({});
  EXPECT_EQ(none.size(), 0);
  EXPECT_THAT(epoch(none), IsEmpty());
}

TEST(SubsetRandomSamplerTest, GoesOnFromItsState) {
  Numbers indices = up_to(100);
  expect_resumes([&] { return std::make_unique<SubsetRandomSampler>(indices, seeded(4)); });
  expect_resumes([&] { return std::make_unique<SubsetRandomSampler>(indices); });
}

// Two of one seed, taken from in turns, do not disturb each other; nor do epochs left early.
TEST(SubsetRandomSamplerTest, AnEpochDrawsEverythingAtItsFirstKey) {
  const auto generator = seeded(1);
  SubsetRandomSampler one(up_to(50), generator);
  one.reset();
  one.next();
  const uint64_t after = detail::draw_seed(generator.clone());
  one.next();
  EXPECT_EQ(detail::draw_seed(generator.clone()), after);
  SubsetRandomSampler other(up_to(50), seeded(1));
  epoch(other);
  one.reset();
  other.reset();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(one.next(), other.next());
}

// A vector of PyTorch 2.13.
TEST(WeightedRandomSamplerTest, DrawsPythonsOrder) {
  WeightedRandomSampler sampler({.1, .9, .4, .7, 3, .6}, 5, true, seeded(42));
  EXPECT_THAT(epoch(sampler), ElementsAre(1, 1, 1, 1, 4));
}

// 20,000 draws: each frequency is within five standard deviations.
TEST(WeightedRandomSamplerTest, DrawsInProportionToTheWeights) {
  const std::vector<double> weights = {0, 1, 2, 0, 7, 0};
  WeightedRandomSampler sampler(weights, 20000, true, seeded(test_seed()));
  std::vector<double> counts(weights.size());
  for (const int64_t index : epoch(sampler)) ++counts.at(static_cast<size_t>(index));
  for (size_t i = 0; i < weights.size(); ++i) {
    const double p = weights[i] / 10;
    EXPECT_LE(std::abs(counts[i] - 20000 * p), 5 * std::sqrt(20000 * p * (1 - p))) << i;
  }
}

TEST(WeightedRandomSamplerTest, WithoutReplacementEachComesOnceAndNoneOfWeightZero) {
  const std::vector<double> weights = {0, 1, 1e-300, 5e-324, 0, 1e300, 0};
  for (int i = 0; i < 50; ++i) {
    WeightedRandomSampler sampler(weights, 4, false, seeded(test_seed() + i));
    EXPECT_THAT(sorted(epoch(sampler)), ElementsAre(1, 2, 3, 5));
  }
}

// The first sample of 20,000 draws of two out of four.
TEST(WeightedRandomSamplerTest, WithoutReplacementTheFirstIsDrawnInProportion) {
  WeightedRandomSampler sampler({1, 2, 3, 4}, 2, false, seeded(test_seed()));
  std::vector<double> counts(4);
  for (int i = 0; i < 20000; ++i) ++counts.at(static_cast<size_t>(epoch(sampler).front()));
  for (size_t i = 0; i < 4; ++i) {
    const double p = static_cast<double>(i + 1) / 10;
    EXPECT_LE(std::abs(counts[i] - 20000 * p), 5 * std::sqrt(20000 * p * (1 - p))) << i;
  }
}

TEST(WeightedRandomSamplerTest, TakesMoreWeightsThanAFloatCanCount) {
  constexpr size_t kCount = (1 << 24) + 9;
  std::vector<double> weights(kCount, 0);
  weights[kCount - 1] = 1;
  weights[kCount - 3] = 1;
  WeightedRandomSampler with(weights, 64, true, seeded(test_seed()));
  const Numbers drawn = epoch(with);
  EXPECT_EQ(std::set<int64_t>(drawn.begin(), drawn.end()),
            (std::set<int64_t>{kCount - 3, kCount - 1}));
  WeightedRandomSampler without(std::move(weights), 2, false, seeded(test_seed()));
  EXPECT_THAT(sorted(epoch(without)), ElementsAre(kCount - 3, kCount - 1));
}

TEST(WeightedRandomSamplerTest, AnEpochOfBillionsOfDrawsTakesButASeedFromItsGenerator) {
  for (const int64_t num_samples : {int64_t{4'000'000'000}, INT64_MAX}) {
    const at::Generator given = seeded(5), same = seeded(5);
    WeightedRandomSampler sampler({1, 2, 3}, num_samples, true, given);
    WeightedRandomSampler other({1, 2, 3}, 100, true, seeded(detail::draw_seed(same)));
    sampler.reset();
    other.reset();
    for (int i = 0; i < 100; ++i) ASSERT_EQ(sampler.next(), other.next());
    ASSERT_EQ(detail::draw_seed(given), detail::draw_seed(same));
  }
}

TEST(WeightedRandomSamplerTest, GoesOnFromItsState) {
  std::vector<double> weights(40);
  std::iota(weights.begin(), weights.end(), 0);
  for (const bool replacement : {false, true}) {
    expect_resumes([&] {
      return std::make_unique<WeightedRandomSampler>(weights, 30, replacement, seeded(4));
    });
    expect_resumes(
        [&] { return std::make_unique<WeightedRandomSampler>(weights, 30, replacement); });
  }
}

TEST(WeightedRandomSamplerTest, RefusesWhatCannotBeDrawn) {
  const auto error = [](std::vector<double> weights, int64_t num_samples, bool replacement) {
    return text_of<std::invalid_argument>(
        [&] { WeightedRandomSampler(weights, num_samples, replacement); });
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error({1}, 0, true), "stoker: num_samples is 0; it must be 1 or more");
  for (const bool replacement : {false, true}) {
    EXPECT_EQ(error({1, -2}, 1, replacement),
              "stoker: weight 1 is -2.000000; weights must be finite, and 0 or more");
    EXPECT_THAT(error({kInfinity}, 1, replacement), HasSubstr("weight 0 is inf; "));
    EXPECT_THAT(error({1, 1, kNan}, 1, replacement), HasSubstr("weight 2 is nan; "));
    EXPECT_EQ(error({0, 0}, 1, replacement),
              "stoker: all weights are 0, or there are none; one at least must be greater");
    EXPECT_EQ(error({}, 1, replacement), error({0}, 1, replacement));
    EXPECT_EQ(error({1e308, 1e308}, 1, replacement),
              "stoker: the weights add up to infinity; divide them by the greatest");
  }
  EXPECT_EQ(error({0, 1, 2}, 3, false),
            "stoker: num_samples is 3, and without replacement only 2 samples of a weight above 0 "
            "can be drawn");
  EXPECT_EQ(error({0, 1, 2}, 3, true), "nothing was thrown");
}

std::vector<Numbers> ranks(int64_t size, DistributedSamplerOptions options, int64_t number = 0) {
  std::vector<Numbers> all;
  for (options.rank = 0; options.rank < options.num_replicas; ++options.rank) {
    DistributedSampler sampler(size, options);
    sampler.set_epoch(number);
    all.push_back(epoch(sampler));
    EXPECT_EQ(sampler.size(), static_cast<int64_t>(all.back().size()));
  }
  return all;
}

// Vectors of PyTorch 2.13.
TEST(DistributedSamplerTest, DrawsPythonsOrders) {
  EXPECT_THAT(ranks(10, {.num_replicas = 3}),
              ElementsAre(Numbers{4, 5, 0, 2}, Numbers{1, 3, 8, 4}, Numbers{7, 9, 6, 1}));
  EXPECT_THAT(ranks(10, {.num_replicas = 3}, 1),
              ElementsAre(Numbers{5, 2, 9, 4}, Numbers{6, 0, 3, 5}, Numbers{1, 8, 7, 6}));
  EXPECT_THAT(ranks(10, {.num_replicas = 3, .shuffle = false}),
              ElementsAre(Numbers{0, 3, 6, 9}, Numbers{1, 4, 7, 0}, Numbers{2, 5, 8, 1}));
  EXPECT_THAT(ranks(10, {.num_replicas = 3, .shuffle = false, .drop_last = true}),
              ElementsAre(Numbers{0, 3, 6}, Numbers{1, 4, 7}, Numbers{2, 5, 8}));
  EXPECT_THAT(ranks(2, {.num_replicas = 5, .shuffle = false}),
              ElementsAre(Numbers{0}, Numbers{1}, Numbers{0}, Numbers{1}, Numbers{0}));
}

TEST(DistributedSamplerTest, WithoutPaddingEachSampleComesOnce) {
  for (const int64_t size : {0, 1, 2, 4, 5, 9, 10, 11}) {
    Numbers all;
    for (const Numbers& rank : ranks(size, {.num_replicas = 5, .seed = 3, .padding = false})) {
      all.insert(all.end(), rank.begin(), rank.end());
    }
    EXPECT_EQ(sorted(all), up_to(size));
  }
}

TEST(DistributedSamplerTest, TellsHowManyAreNoRepetitions) {
  for (const int64_t size : {0, 1, 2, 4, 5, 9, 10, 11}) {
    for (int64_t rank = 0; rank < 5; ++rank) {
      DistributedSampler padded(size, {.num_replicas = 5, .rank = rank});
      DistributedSampler bare(size, {.num_replicas = 5, .rank = rank, .padding = false});
      EXPECT_EQ(bare.size(), bare.valid_count());
      EXPECT_EQ(padded.valid_count(), bare.valid_count());
      Numbers order = epoch(padded);
      order.resize(static_cast<size_t>(padded.valid_count()));
      EXPECT_EQ(order, epoch(bare));
    }
  }
  EXPECT_EQ(DistributedSampler(11, {.num_replicas = 5, .drop_last = true}).valid_count(), 2);
}

TEST(DistributedSamplerTest, EachEpochIsANewOneUnlessSet) {
  DistributedSampler sampler(10, {.num_replicas = 2, .rank = 1});
  const auto first = epoch(sampler);
  const auto second = epoch(sampler);
  EXPECT_NE(first, second);
  sampler.set_epoch(0);
  EXPECT_EQ(epoch(sampler), first);
  EXPECT_EQ(epoch(sampler), second);
  EXPECT_EQ(first, ranks(10, {.num_replicas = 2})[1]);
  EXPECT_EQ(second, ranks(10, {.num_replicas = 2}, 1)[1]);
}

TEST(DistributedSamplerTest, TheSeedAndTheEpochAddUpAsInPython) {
  EXPECT_EQ(ranks(10, {.num_replicas = 3, .seed = 4}, 3), ranks(10, {.num_replicas = 3}, 7));
  EXPECT_NE(ranks(10, {.num_replicas = 3, .seed = 4}), ranks(10, {.num_replicas = 3}));
}

TEST(DistributedSamplerTest, GoesOnFromItsState) {
  for (const int64_t rank : {0, 2}) {
    expect_resumes([&] {
      return std::make_unique<DistributedSampler>(
          100, DistributedSamplerOptions{.num_replicas = 3, .rank = rank, .seed = 9});
    });
  }
}

TEST(DistributedSamplerTest, AnOrderThatMemoryCannotHoldIsRefusedAtEachTry) {
  DistributedSampler sampler(1'000'000'000'000, {.num_replicas = 2});
  sampler.reset();
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(text_of<std::runtime_error>([&] { sampler.next(); }),
                HasSubstr("use KeyedRandomSampler"));
  }
  EXPECT_EQ(rest(sampler, int64_t{1} << 62), Numbers());
}

TEST(DistributedSamplerTest, TellsItsOptions) {
  const DistributedSampler sampler(10, {.num_replicas = 3, .rank = 2, .padding = false});
  EXPECT_EQ(sampler.options().rank, 2);
  EXPECT_FALSE(sampler.options().padding);
}

TEST(DistributedSamplerTest, RefusesRanksThatAreNotThere) {
  const auto error = [](int64_t size, DistributedSamplerOptions options) {
    return text_of<std::invalid_argument>([&] { DistributedSampler(size, options); });
  };
  EXPECT_EQ(error(10, {.num_replicas = 3, .rank = 3}),
            "stoker: rank is 3 of 3 replicas; it must be 0 to 2");
  EXPECT_EQ(error(10, {.num_replicas = 3, .rank = -1}),
            "stoker: rank is -1 of 3 replicas; it must be 0 to 2");
  EXPECT_EQ(error(10, {}), "stoker: num_replicas is 0; give the number of processes, 1 or more");
  EXPECT_EQ(error(10, {.num_replicas = 2, .drop_last = true, .padding = false}),
            "stoker: drop_last and padding = false exclude each other; drop_last needs no padding");
  EXPECT_EQ(error(-1, {.num_replicas = 2}), "stoker: a sampler's size is -1; it must be 0 or more");
}

}  // namespace
}  // namespace stoker
