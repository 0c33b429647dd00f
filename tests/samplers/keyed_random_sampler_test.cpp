// SPDX-License-Identifier: BSD-3-Clause

// KeyedRandomSampler and the permutation behind it, statistically. Each check of randomness lets a
// random permutation fail about once in ten million runs.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/samplers.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "datasets.h"
#include "samplers.h"
#include "samplers/keyed_permutation.h"
#include "support.h"

namespace stoker {
namespace {

using detail::KeyedPermutation;

at::Generator seeded(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

// How many standard deviations chi-square lies above its mean, for equally likely cells; Wilson and
// Hilferty's approximation.
double excess(const std::vector<double>& counts, double degrees_of_freedom) {
  double total = 0;
  for (const double count : counts) total += count;
  const double expected = total / static_cast<double>(counts.size());
  double chi_square = 0;
  for (const double count : counts)
    chi_square += (count - expected) * (count - expected) / expected;
  const double spread = 2 / (9 * degrees_of_freedom);
  return (std::cbrt(chi_square / degrees_of_freedom) - (1 - spread)) / std::sqrt(spread);
}
constexpr double kMostExcess = 5.2;

// Keys as epochs draw them.
class Keys {
 public:
  uint64_t next() { return random_(); }

 private:
  std::mt19937_64 random_{test_seed()};
};

TEST(KeyedPermutationTest, IsAPermutationOfAnySize) {
  Keys keys;
  for (uint64_t size = 1; size < 300; ++size) {
    const KeyedPermutation permutation(size, keys.next());
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t index = permutation(i);
      ASSERT_LT(index, size);
      ASSERT_FALSE(seen[index]) << size;
      seen[index] = true;
    }
  }
  for (const uint64_t size : {65536u, 65537u, 99991u, (1u << 17) + 1}) {
    const KeyedPermutation permutation(size, keys.next());
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) seen[permutation(i)] = true;
    EXPECT_EQ(std::ranges::count(seen, true), size);
  }
}

TEST(KeyedPermutationTest, OfTheGreatestSizesDifferentPositionsHaveDifferentEntries) {
  Keys keys;
  for (const uint64_t size : {uint64_t{1} << 62, (uint64_t{1} << 62) - 1, (uint64_t{1} << 61) + 7,
                              uint64_t{1'000'000'007} * 1'000'000'009}) {
    const KeyedPermutation permutation(size, keys.next());
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 1000; ++i) {
      seen.insert(permutation(i));
      seen.insert(permutation(size - 1 - i));
      seen.insert(permutation(size / 2 + i));
    }
    EXPECT_EQ(seen.size(), 3000u);
    EXPECT_LT(*seen.rbegin(), size);
    EXPECT_GT(*seen.rbegin(), size / 10 * 9);  // 0.9^3000
    EXPECT_LT(*seen.begin(), size / 10);
  }
}

constexpr uint64_t kSize = 70'001;  // just above the sizes that are shuffled

// Where one position's entry goes, over many keys.
TEST(KeyedPermutationTest, AnEntryIsAnywhere) {
  Keys keys;
  for (const uint64_t position : {uint64_t{0}, uint64_t{1}, kSize / 2, kSize - 1}) {
    std::vector<double> counts(500);
    for (int i = 0; i < 100'000; ++i) {
      ++counts[KeyedPermutation(kSize, keys.next())(position) * counts.size() / kSize];
    }
    EXPECT_LT(excess(counts, static_cast<double>(counts.size() - 1)), kMostExcess) << position;
  }
}

// Blocks of positions by blocks of entries, within one permutation.
TEST(KeyedPermutationTest, AnyStretchIsSpreadOverAll) {
  Keys keys;
  for (const uint64_t size : {kSize, uint64_t{1} << 17, uint64_t{200'003}}) {
    constexpr uint64_t kBlocks = 64;
    const KeyedPermutation permutation(size, keys.next());
    std::vector<double> counts(kBlocks * kBlocks);
    for (uint64_t i = 0; i < size; ++i) {
      ++counts[i * kBlocks / size * kBlocks + permutation(i) * kBlocks / size];
    }
    EXPECT_LT(excess(counts, (kBlocks - 1) * (kBlocks - 1)), kMostExcess) << size;
  }
}

// The distance from one entry to the next (or one some positions on) is anything.
TEST(KeyedPermutationTest, NeighboursLieAnywhere) {
  Keys keys;
  for (const uint64_t apart : {1u, 2u, 264u, 265u, 266u, 1000u}) {  // 265: the table's rows
    const KeyedPermutation permutation(kSize, keys.next());
    std::vector<double> counts(1000);
    for (uint64_t i = 0; i + apart < kSize; ++i) {
      const uint64_t distance = (permutation(i + apart) + kSize - permutation(i)) % kSize;
      ++counts[distance * counts.size() / kSize];
    }
    EXPECT_LT(excess(counts, static_cast<double>(counts.size() - 1)), kMostExcess) << apart;
  }
}

// Which of two positions comes first, and all six orders of three.
TEST(KeyedPermutationTest, AnyOrderOfThreeIsAsLikely) {
  Keys keys;
  std::vector<double> counts(8);
  for (int i = 0; i < 60'000; ++i) {
    const KeyedPermutation permutation(kSize, keys.next());
    const uint64_t a = permutation(10);
    const uint64_t b = permutation(11);
    const uint64_t c = permutation(50'000);
    ++counts[(a < b ? 1 : 0) + (a < c ? 2 : 0) + (b < c ? 4 : 0)];
  }
  EXPECT_EQ(counts[2] + counts[5], 0);  // no order at all
  counts.erase(counts.begin() + 5);
  counts.erase(counts.begin() + 2);
  EXPECT_LT(excess(counts, 5), kMostExcess);
}

// Entries that are their own position: one in each permutation, on average, with variance one.
TEST(KeyedPermutationTest, HasAsManyFixedPointsAsChanceHas) {
  Keys keys;
  constexpr int kKeys = 25;
  int64_t fixed = 0;
  for (int i = 0; i < kKeys; ++i) {
    const KeyedPermutation permutation(kSize, keys.next());
    for (uint64_t at = 0; at < kSize; ++at) fixed += permutation(at) == at;
  }
  EXPECT_NEAR(static_cast<double>(fixed), kKeys, 6 * std::sqrt(kKeys));
}

// Keys that differ in one bit: the same position's entries have nothing to do with each other.
TEST(KeyedPermutationTest, KeysThatAreAlikeGivePermutationsThatAreNot) {
  Keys keys;
  for (int bit = 0; bit < 64; bit += 7) {
    const uint64_t key = keys.next();
    const KeyedPermutation one(kSize, key);
    const KeyedPermutation other(kSize, key ^ uint64_t{1} << bit);
    std::vector<double> counts(1000);
    int same = 0;
    for (uint64_t i = 0; i < kSize; ++i) {
      const uint64_t distance = (one(i) + kSize - other(i)) % kSize;
      ++counts[distance * counts.size() / kSize];
      same += distance == 0;
    }
    EXPECT_LT(excess(counts, static_cast<double>(counts.size() - 1)), kMostExcess) << bit;
    EXPECT_LT(same, 15) << bit;  // of a mean of 1
  }
}

TEST(KeyedRandomSamplerTest, YieldsEveryIndexOnceInAnotherOrderEachEpoch) {
  for (const int64_t size : {0, 1, 2, 3, 10, 65536, 65537}) {
    KeyedRandomSampler sampler(size, seeded(test_seed()));
    EXPECT_EQ(sampler.size(), size);
    Numbers one = epoch(sampler);
    Numbers other = epoch(sampler);
    EXPECT_FALSE(sampler.next());
    if (size >= 65536) {
      EXPECT_NE(one, other);
    }
    std::ranges::sort(one);
    std::ranges::sort(other);
    EXPECT_EQ(one, up_to(size));
    EXPECT_EQ(other, up_to(size));
  }
}

// All 120 of five, over many epochs.
TEST(KeyedRandomSamplerTest, OfFewSamplesAnyOrderIsAsLikely) {
  KeyedRandomSampler sampler(5, seeded(test_seed()));
  std::vector<double> counts(120);
  for (int i = 0; i < 12'000; ++i) {
    const Numbers order = epoch(sampler);
    size_t rank = 0;
    for (size_t a = 0; a < 5; ++a) {
      const auto less = std::count_if(order.begin() + static_cast<int64_t>(a), order.end(),
                                      [&](int64_t other) { return other < order[a]; });
      rank = rank * (5 - a) + static_cast<size_t>(less);
    }
    ++counts[rank];
  }
  EXPECT_LT(excess(counts, 119), kMostExcess);
}

TEST(KeyedRandomSamplerTest, SkipsToWhereItWouldBeAndResumes) {
  for (const int64_t size : {50, 66'000}) {
    for (const bool own : {false, true}) {
      const auto make = [&] {
        return own ? KeyedRandomSampler(size, seeded(5)) : KeyedRandomSampler(size);
      };
      auto sampler = make();
      const StateDict state = sampler.state_dict();
      const auto first = epoch(sampler);
      const auto second = epoch(sampler);
      for (const int64_t skipped : {int64_t{0}, int64_t{1}, size / 3, size - 1, size, size + 9}) {
        auto other = make();
        other.load_state_dict(state);
        other.reset();
        other.skip(skipped);
        for (int64_t i = skipped; i < std::min(skipped + 100, size); ++i) {
          ASSERT_EQ(other.next(), first[static_cast<size_t>(i)]) << skipped;
        }
        EXPECT_EQ(other.next().has_value(), skipped + 100 < size);
        other.reset();
        EXPECT_EQ(other.next(), second.front());
      }
    }
  }
}

TEST(KeyedRandomSamplerTest, OfAnySizeItBeginsAndSkipsAtOnce) {
  KeyedRandomSampler sampler(KeyedRandomSampler::kMostSamples, seeded(test_seed()));
  sampler.reset();
  const auto first = sampler.next();
  ASSERT_TRUE(first);
  EXPECT_GE(*first, 0);
  EXPECT_LT(*first, KeyedRandomSampler::kMostSamples);
  sampler.skip(KeyedRandomSampler::kMostSamples - 2);
  EXPECT_TRUE(sampler.next());
  EXPECT_FALSE(sampler.next());
}

TEST(KeyedRandomSamplerTest, DrawsItsKeyAtTheFirstIndex) {
  at::manual_seed(0);
  KeyedRandomSampler sampler(100'000);
  sampler.reset();
  EXPECT_EQ(at::empty({}, at::kLong).random_().item<int64_t>(), 900450186894289455);
  EXPECT_EQ(sampler.next().has_value(), true);
  const Numbers order = rest_of(sampler);
  at::manual_seed(0);
  at::empty({}, at::kLong).random_();
  KeyedRandomSampler other(100'000);
  EXPECT_EQ(rest(other, 1), order);
}

TEST(KeyedRandomSamplerTest, RefusesSizesThatCannotBe) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { KeyedRandomSampler(-1); }),
            "stoker: a sampler's size is -1; it must be 0 or more");
  EXPECT_EQ(text_of<std::invalid_argument>([] { KeyedRandomSampler((int64_t{1} << 62) + 1); }),
            "stoker: a KeyedRandomSampler's size is 4611686018427387905; it may be at most 2^62");
}

}  // namespace
}  // namespace stoker
