// SPDX-License-Identifier: BSD-3-Clause
#include "worker/randomness.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <set>
#include <vector>

namespace stoker::detail {
namespace {

// What a sample may draw.
struct Draws {
  std::vector<double> torch;
  std::vector<long> c;
  bool operator==(const Draws&) const = default;
};

// Of both kinds; a few normal numbers leave one over in torch's generator.
Draws draw() {
  Draws draws;
  for (const double value : {at::randn({1}).item<double>(), at::rand({1}).item<double>(),
                             at::randn({3}, at::kDouble)[2].item<double>()}) {
    draws.torch.push_back(value);
  }
  draws.c = {rand(), rand(), random()};
  return draws;
}

Draws drawn_from(SampleRandomness& random, uint64_t seed) {
  random.before(seed);
  const Draws draws = draw();
  random.after();
  return draws;
}

// What a sample draws that is the first of its loader.
Draws fresh(uint64_t seed) {
  SampleRandomness random;
  random.enter();
  const Draws draws = drawn_from(random, seed);
  random.leave();
  return draws;
}

void fetch_quietly(SampleRandomness& random, int samples) {
  for (int i = 0; i < samples; ++i) {
    random.before(static_cast<uint64_t>(i));
    random.after();
  }
}

// A loader that has learned that its dataset draws nothing.
class QuietTest : public testing::Test {
 protected:
  QuietTest() {
    random_.enter();
    fetch_quietly(random_, 100);
  }
  ~QuietTest() override { random_.leave(); }

  SampleRandomness random_;
};

TEST(SampleSeedTest, DependsOnEpochAndPosition) {
  EXPECT_EQ(sample_seed(1, 2), sample_seed(1, 2));
  std::set<uint64_t> seeds;
  for (uint64_t epoch = 0; epoch < 100; ++epoch) {
    for (uint64_t position = 0; position < 100; ++position) {
      seeds.insert(sample_seed(epoch, position));
    }
  }
  EXPECT_EQ(seeds.size(), 10'000u);
}

TEST(SampleSeedTest, NeighboursHaveLittleInCommon) {
  for (uint64_t position = 0; position < 1000; ++position) {
    const uint64_t changed = sample_seed(7, position) ^ sample_seed(7, position + 1);
    EXPECT_GT(std::popcount(changed), 8) << position;
    EXPECT_LT(std::popcount(changed), 56) << position;
  }
}

TEST(RandomnessTest, ASampleDrawsTheSameWhateverCameBefore) {
  SampleRandomness random;
  random.enter();
  for (const uint64_t seed : {5u, 6u, 5u, 1u, 6u}) {
    EXPECT_EQ(drawn_from(random, seed), fresh(seed)) << seed;
  }
  random.leave();
}

TEST(RandomnessTest, OtherSeedsDrawOtherNumbers) {
  const Draws a = fresh(1);
  const Draws b = fresh(2);
  EXPECT_NE(a.torch, b.torch);
  EXPECT_NE(a.c, b.c);
}

TEST(RandomnessTest, ANormalNumberLeftOverIsNotTheNextSamples) {
  SampleRandomness random;
  random.enter();
  random.before(1);
  at::randn({1});  // makes two, and keeps one
  at::randn({1}, at::kDouble);
  random.after();
  random.before(2);
  const float next = at::randn({1}).item<float>();
  const double next_double = at::randn({1}, at::kDouble).item<double>();
  random.before(2);
  EXPECT_EQ(at::randn({1}).item<float>(), next);
  EXPECT_EQ(at::randn({1}, at::kDouble).item<double>(), next_double);
  random.leave();
}

// The program's own draws go on as if no loader had been.
class ProgramTest : public testing::TestWithParam<bool> {
 protected:
  static void seed_program() {
    at::manual_seed(11);
    srand(11);
  }
};

TEST_P(ProgramTest, ItsGeneratorsAreLeftAsTheyWere) {
  seed_program();
  std::vector<Draws> undisturbed;
  for (int i = 0; i < 4; ++i) undisturbed.push_back(draw());

  seed_program();
  SampleRandomness random;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(draw(), undisturbed[static_cast<size_t>(i)]) << i;
    random.enter();
    if (GetParam()) {
      drawn_from(random, 3);
    } else {
      fetch_quietly(random, 20);  // in all enough to become quiet
      EXPECT_FALSE(random.surprised());
    }
    random.leave();
  }
}

TEST_P(ProgramTest, ANormalNumberLeftOverIsStillThere) {
  seed_program();
  const float first = at::randn({1}).item<float>();
  const float second = at::randn({1}).item<float>();

  seed_program();
  SampleRandomness random;
  EXPECT_EQ(at::randn({1}).item<float>(), first);
  random.enter();
  if (GetParam()) drawn_from(random, 3);
  random.leave();
  EXPECT_EQ(at::randn({1}).item<float>(), second);
}

INSTANTIATE_TEST_SUITE_P(Datasets, ProgramTest, testing::Values(true, false),
                         [](const auto& test) { return test.param ? "Drawing" : "Quiet"; });

TEST(RandomnessTest, ADatasetThatDrawsIsNeverASurprise) {
  SampleRandomness random;
  random.enter();
  for (uint64_t i = 0; i < 100; ++i) {
    drawn_from(random, i);
    EXPECT_FALSE(random.surprised()) << i;
  }
  random.leave();
}

TEST(RandomnessTest, ADatasetThatDrawsNowAndThenIsSeededAlways) {
  SampleRandomness random;
  random.enter();
  fetch_quietly(random, 10);
  drawn_from(random, 1);
  fetch_quietly(random, 1000);
  EXPECT_EQ(drawn_from(random, 9), fresh(9));
  EXPECT_FALSE(random.surprised());
  random.leave();
}

TEST_F(QuietTest, NothingIsSeededAnyMore) {
  random_.before(1);
  const Draws one = draw();
  EXPECT_TRUE(random_.surprised());
  EXPECT_NE(one.torch, fresh(1).torch);
  EXPECT_NE(one.c, fresh(1).c);
}

TEST_F(QuietTest, NoDrawIsNoSurprise) {
  fetch_quietly(random_, 100);
  EXPECT_FALSE(random_.surprised());
}

TEST_F(QuietTest, ASurpriseIsToldOnceAndThenEverySampleIsSeeded) {
  drawn_from(random_, 1);
  EXPECT_TRUE(random_.surprised());
  EXPECT_FALSE(random_.surprised());
  for (const uint64_t seed : {1u, 2u, 1u}) EXPECT_EQ(drawn_from(random_, seed), fresh(seed));
  fetch_quietly(random_, 100);
  EXPECT_EQ(drawn_from(random_, 3), fresh(3));
  EXPECT_FALSE(random_.surprised());
}

TEST_F(QuietTest, EitherGeneratorAloneIsASurprise) {
  random_.before(1);
  at::rand({1});
  EXPECT_TRUE(random_.surprised());
  fetch_quietly(random_, 10);
  EXPECT_FALSE(random_.surprised());
  random_.before(1);
  rand();  // watched on
  EXPECT_TRUE(random_.surprised());
}

TEST_F(QuietTest, ASeedSetByTheSampleIsASurprise) {
  random_.before(1);
  at::manual_seed(1234);
  EXPECT_TRUE(random_.surprised());
}

// States that look like fresh ones in part: whole turns of the generators' tables.
TEST_F(QuietTest, DrawsOfAWholeTableAreNoticed) {
  for (const int64_t draws : {624, 1248, 624 * 7}) {
    SampleRandomness random;
    random.enter();
    fetch_quietly(random, 100);
    at::rand({draws});
    EXPECT_TRUE(random.surprised()) << draws;
    random.leave();
  }
  for (const int draws : {31, 62, 31 * 34}) {
    SampleRandomness random;
    random.enter();
    fetch_quietly(random, 100);
    for (int i = 0; i < draws; ++i) rand();
    EXPECT_TRUE(random.surprised()) << draws;
    random.leave();
  }
}

TEST(RandomnessTest, WhatTheProgramDrawsBetweenIsNoSurprise) {
  SampleRandomness random;
  random.enter();
  fetch_quietly(random, 100);
  random.leave();
  draw();
  random.enter();
  fetch_quietly(random, 1);
  EXPECT_FALSE(random.surprised());
  draw();
  EXPECT_TRUE(random.surprised());
  random.leave();
}

TEST(RandomnessTest, SamplesOfOneGeneratorDoNotSeedTheOther) {
  SampleRandomness random;
  random.enter();
  for (uint64_t i = 0; i < 100; ++i) {  // torch's is drawn from, C's is not
    random.before(i);
    at::rand({1});
    random.after();
  }
  EXPECT_FALSE(random.surprised());
  random.before(1);
  rand();
  EXPECT_TRUE(random.surprised());
  random.leave();
}

}  // namespace
}  // namespace stoker::detail
