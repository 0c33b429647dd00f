// SPDX-License-Identifier: BSD-3-Clause
#include "loader/memory_budget.h"

#include <gtest/gtest.h>

namespace stoker::detail {
namespace {

constexpr uint64_t kMegabyte = 1 << 20;

// A budget that has seen one batch, which is gone.
MemoryBudget after_a_batch_of(uint64_t bytes, uint64_t limit) {
  MemoryBudget budget(limit, 4);
  budget.begin(0);
  budget.learn(0, bytes);
  budget.drop(0);
  return budget;
}

TEST(MemoryBudgetTest, WhileNothingIsKnownEachBatchMayTakeAnEqualShare) {
  MemoryBudget budget(1000, 4);
  for (uint32_t slot = 0; slot < 4; ++slot) {
    ASSERT_TRUE(budget.has_room(0));
    EXPECT_EQ(budget.begin(slot), 250u);
  }
  EXPECT_FALSE(budget.has_room(0));
}

TEST(MemoryBudgetTest, AsManyAreInFlightAsFit) {
  MemoryBudget budget = after_a_batch_of(300, 1000);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    ASSERT_TRUE(budget.has_room(0)) << slot;
    budget.begin(slot);
  }
  EXPECT_FALSE(budget.has_room(0));
  EXPECT_EQ(budget.in_flight(), 3u);
}

TEST(MemoryBudgetTest, ABatchMayTakeItsShareOfWhatIsLeft) {
  MemoryBudget budget = after_a_batch_of(100, 1000);
  EXPECT_EQ(budget.begin(0), 100u + 900 / 4);
  EXPECT_EQ(budget.begin(1), 100u + 800 / 4);
}

TEST(MemoryBudgetTest, BatchesThatAreKeptCount) {
  MemoryBudget budget(1000, 4);
  for (uint32_t slot = 0; slot < 3; ++slot) {
    budget.begin(slot);
    budget.learn(slot, 300);
  }
  EXPECT_EQ(budget.in_flight(), 0u);
  EXPECT_FALSE(budget.has_room(0));
  EXPECT_TRUE(budget.has_room(300));  // in the place of one of them
  budget.drop(1);
  EXPECT_TRUE(budget.has_room(0));
}

TEST(MemoryBudgetTest, ABatchThatWasGivenUpCountsAsTheOthers) {
  MemoryBudget budget = after_a_batch_of(300, 1000);
  budget.begin(0);
  budget.end(0);
  budget.end(0);
  EXPECT_EQ(budget.in_flight(), 0u);
  EXPECT_EQ(budget.held(0), 300u);
}

TEST(MemoryBudgetTest, ALargeBatchIsForgottenInTime) {
  MemoryBudget budget(1000 * kMegabyte, 4);
  budget.begin(0);
  budget.learn(0, 400 * kMegabyte);
  EXPECT_EQ(budget.expected(), 400 * kMegabyte);
  EXPECT_FALSE(budget.is_unusual(budget.held(0)));
  for (int batch = 0; batch < 200; ++batch) {
    budget.begin(1);
    budget.learn(1, kMegabyte);
  }
  EXPECT_EQ(budget.expected(), kMegabyte);
  EXPECT_TRUE(budget.is_unusual(budget.held(0)));
  EXPECT_FALSE(budget.is_unusual(10 * kMegabyte));
}

// A slot of which 600 are locked, for batches of 100 by now.
TEST(MemoryBudgetTest, WhatIsLockedCountsAlsoWhereBatchesAreSmaller) {
  MemoryBudget budget(1000, 4);
  budget.begin(0);
  budget.learn(0, 100);
  budget.lock(0, 600);
  EXPECT_EQ(budget.held(0), 600u);
  EXPECT_EQ(budget.reusable(0), 100u);
  budget.begin(0);
  EXPECT_EQ(budget.held(0), 500u);  // beside the batch
  EXPECT_TRUE(budget.has_room(0));
  budget.learn(0, 90);
  EXPECT_EQ(budget.held(0), 600u);
  for (const uint32_t slot : {1u, 2u, 3u, 4u}) {
    EXPECT_TRUE(budget.has_room(0)) << slot;
    budget.begin(slot);
  }
  EXPECT_FALSE(budget.has_room(0));
  EXPECT_TRUE(budget.has_room(budget.reusable(0)));
  budget.drop(0);
  EXPECT_EQ(budget.held(0), 0u);
  EXPECT_TRUE(budget.has_room(0));
}

TEST(MemoryBudgetTest, WhatIsOverTheLimitAlreadyLeavesNothing) {
  MemoryBudget budget(100, 2);
  budget.begin(0);
  budget.learn(0, 500);
  EXPECT_FALSE(budget.has_room(0));
  EXPECT_FALSE(budget.has_room(500));
  EXPECT_EQ(budget.begin(1), 1u);
}

TEST(MemoryBudgetTest, AfterALargeBatchThatIsKeptASmallOneMayStillCome) {
  MemoryBudget budget(1000, 4);
  budget.begin(0);
  budget.learn(0, 100);
  budget.begin(1);
  budget.learn(1, 600);
  budget.drop(0);
  EXPECT_TRUE(budget.has_room(0));
  EXPECT_EQ(budget.begin(0), 400u);
  EXPECT_FALSE(budget.has_room(0));
}

}  // namespace
}  // namespace stoker::detail
