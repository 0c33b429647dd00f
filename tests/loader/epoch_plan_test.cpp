// SPDX-License-Identifier: BSD-3-Clause
#include "loader/epoch_plan.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "datasets.h"
#include "loader/batch_source.h"

namespace stoker::detail {
namespace {

using testing::ElementsAre;

// With the options that it was made of.
struct Plan {
  explicit Plan(DataLoaderOptions given, size_t size)
      : options(std::move(given)),
        plan(options, std::make_unique<BatchSource>(options, [size] { return size; })) {}

  DataLoaderOptions options;
  EpochPlan plan;

  // Delivers up to that many batches.
  std::vector<Numbers> deliver(int64_t batches = 1000) {
    std::vector<Numbers> all;
    for (; batches > 0; --batches) {
      auto task = plan.next();
      if (!task) {
        plan.finish();
        break;
      }
      plan.source().deliver({task->position, task->indices.size()});
      all.push_back(std::move(task->indices));
    }
    return all;
  }
  std::vector<Numbers> epoch() {
    plan.begin();
    return deliver();
  }
};

std::vector<Numbers> operator+(std::vector<Numbers> a, const std::vector<Numbers>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

at::Generator seeded(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

// Vectors of PyTorch 2.13, not persistent: manual_seed(0), and generator=manual_seed(42).
TEST(EpochPlanTest, ShufflesAsPythonDoes) {
  at::manual_seed(0);
  Plan plan({.batch_size = 5, .shuffle = true}, 10);
  EXPECT_THAT(plan.epoch(), ElementsAre(Numbers{6, 7, 1, 4, 2}, Numbers{0, 9, 8, 3, 5}));
  EXPECT_THAT(plan.epoch(), ElementsAre(Numbers{2, 4, 7, 0, 8}, Numbers{9, 5, 3, 6, 1}));
  EXPECT_THAT(plan.epoch(), ElementsAre(Numbers{7, 4, 5, 1, 9}, Numbers{3, 8, 2, 0, 6}));
}

TEST(EpochPlanTest, ShufflesFromAGeneratorAsPythonDoes) {
  Plan plan({.batch_size = 10, .shuffle = true, .generator = seeded(42)}, 10);
  EXPECT_THAT(plan.epoch(), ElementsAre(Numbers{6, 5, 4, 0, 8, 9, 2, 1, 3, 7}));
  EXPECT_THAT(plan.epoch(), ElementsAre(Numbers{3, 6, 5, 8, 9, 4, 2, 0, 7, 1}));
}

TEST(EpochPlanTest, TheSeedsOfEpochsArePythons) {
  for (const bool given : {false, true}) {
    at::manual_seed(0);
    Plan plan({.generator = given ? std::optional(seeded(0)) : std::nullopt}, 3);
    plan.epoch();
    EXPECT_EQ(plan.plan.seed(), 900450186894289455u);
    plan.plan.begin();
    EXPECT_EQ(plan.plan.seed(), 3969543146641149120u);
    plan.epoch();
    EXPECT_EQ(plan.plan.seed(), 1895649597198586619u);
  }
}

class ResumedPlanTest : public testing::TestWithParam<int64_t> {};

// Saved once after so many batches, and once more after the resumed plan delivered another.
TEST_P(ResumedPlanTest, GoesOnAsIfNothingHadHappened) {
  const auto make = [](bool given) {
    return Plan({.batch_size = 3,
                 .shuffle = true,
                 .generator = given ? std::optional(seeded(5)) : std::nullopt},
                10);
  };
  for (const bool given : {false, true}) {
    at::manual_seed(4);
    Plan undisturbed = make(given);
    undisturbed.epoch();
    const auto second = undisturbed.epoch();
    const uint64_t seed = undisturbed.plan.seed();
    const auto third = undisturbed.epoch();

    at::manual_seed(4);
    Plan first = make(given);
    first.epoch();
    first.plan.begin();
    const auto before = first.deliver(GetParam());
    StateDict state = first.plan.state_dict();
    at::manual_seed(99);

    Plan other = make(given);
    other.plan.load_state_dict(state);
    other.plan.begin();
    EXPECT_EQ(other.plan.seed(), seed);
    EXPECT_EQ(other.plan.epoch(), 1);
    const auto between = other.deliver(1);
    state = other.plan.state_dict();
    at::manual_seed(98);

    Plan last = make(given);
    last.plan.load_state_dict(StateDict::from_json(state.to_json()));
    const auto rest = last.epoch();
    if (GetParam() < 3) {
      EXPECT_EQ(before + between + rest, second) << given;
      EXPECT_EQ(last.epoch(), third) << given;
    } else {  // nothing was left of it
      EXPECT_EQ(before + between + rest, second + third) << given;
    }
    EXPECT_EQ(last.plan.epoch(), 2);
  }
}
INSTANTIATE_TEST_SUITE_P(Batches, ResumedPlanTest, testing::Values(0, 1, 2, 3));

TEST(EpochPlanTest, ALoadedEpochOfWhichNothingIsLeftIsFollowedByTheNext) {
  at::manual_seed(4);
  Plan plan({.batch_size = 3, .shuffle = true}, 10);
  plan.plan.begin();
  const auto all = plan.deliver(4);
  const StateDict last = plan.plan.state_dict();
  EXPECT_EQ(last.integer("place.batches"), 4);
  EXPECT_THAT(plan.deliver(1), testing::IsEmpty());
  const StateDict finished = plan.plan.state_dict();
  EXPECT_FALSE(finished.contains("place.batches"));
  const auto next = plan.epoch();
  for (const StateDict& state : {last, finished}) {
    at::manual_seed(99);
    Plan other({.batch_size = 3, .shuffle = true}, 10);
    other.plan.load_state_dict(state);
    EXPECT_EQ(other.epoch(), next);
    EXPECT_EQ(other.plan.epoch(), 1);
  }
}

TEST(EpochPlanTest, BatchesThatCameBeforeTheirTurnAreNotMadeAgain) {
  Plan plan({.batch_size = 2}, 8);
  plan.plan.begin();
  plan.plan.source().deliver({4, 2});
  Plan other({.batch_size = 2}, 8);
  other.plan.load_state_dict(plan.plan.state_dict());
  EXPECT_THAT(other.epoch(), ElementsAre(Numbers{0, 1}, Numbers{2, 3}, Numbers{6, 7}));
}

// A program that restores the default generator itself does so after it loaded the loader.
TEST(EpochPlanTest, WhatTheProgramDrawsBetweenLoadingAndBeginningChangesNothing) {
  at::manual_seed(4);
  Plan plan({.batch_size = 3, .shuffle = true}, 10);
  plan.plan.begin();
  const StateDict state = plan.plan.state_dict();
  const auto all = plan.deliver();
  plan.plan.load_state_dict(state);
  at::manual_seed(99);
  EXPECT_EQ(plan.epoch(), all);
}

TEST(EpochPlanTest, BeforeTheFirstEpochTheStateIsThatOfItsStart) {
  at::manual_seed(4);
  Plan plan({.batch_size = 3, .shuffle = true}, 10);
  const StateDict state = plan.plan.state_dict();
  const auto first = plan.epoch();
  plan.plan.load_state_dict(state);
  EXPECT_EQ(plan.epoch(), first);
  EXPECT_EQ(plan.plan.epoch(), 0);
}

TEST(EpochPlanTest, IsAFewHundredBytes) {
  Plan plan({.batch_size = 3, .shuffle = true, .generator = seeded(5)}, 1000);
  plan.epoch();
  plan.plan.begin();
  plan.deliver(5);
  EXPECT_LT(plan.plan.state_dict().to_json().size(), 300U);
}

TEST(EpochPlanTest, AStateThatIsNoneIsRefused) {
  Plan plan({.batch_size = 3}, 10);
  const StateDict good = plan.plan.state_dict();
  const auto text = [&](const char* name, int64_t value) {
    StateDict state = good;
    state.set(name, value);
    return text_of<std::invalid_argument>([&] { plan.plan.load_state_dict(state); });
  };
  EXPECT_EQ(text("version", 1),
            "stoker: the state is of version 1, and this library reads version 2");
  EXPECT_EQ(text("epoch", -1), "stoker: the state is damaged: its epoch is -1");
  EXPECT_EQ(text_of<std::invalid_argument>([&] { plan.plan.load_state_dict({}); }),
            "stoker: the state has no 'version'");
}

}  // namespace
}  // namespace stoker::detail
