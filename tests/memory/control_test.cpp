// SPDX-License-Identifier: BSD-3-Clause
#include "memory/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "slot_memory.h"

namespace stoker::detail {
namespace {

using testing::ElementsAre;

class ControlBlockTest : public testing::Test {
 protected:
  ControlBlockTest() : control_(memory_.control()) {}

  void publish(uint32_t slot, int64_t samples) {
    std::vector<int64_t> indices(static_cast<size_t>(samples), 0);
    control_.slot(slot).publish(indices, control_.published(), {});
    control_.publish(slot);
  }
  std::optional<Claim> claim(uint32_t at_most, uint32_t worker = 0) {
    return control_.claim(control_.worker(worker),
                          [&](uint32_t rest, uint32_t) { return std::min(rest, at_most); });
  }

  static constexpr uint32_t kSlots = 3;
  HeapSlots memory_{2, kSlots};
  Control& control_;
};

TEST_F(ControlBlockTest, GivesOutRowsInChunksUntilNoneIsLeft) {
  publish(0, 5);
  std::vector<std::pair<uint32_t, uint32_t>> chunks;
  while (const auto mine = claim(2)) chunks.emplace_back(mine->rows.first, mine->rows.count);
  EXPECT_THAT(chunks, ElementsAre(std::pair(0u, 2u), std::pair(2u, 2u), std::pair(4u, 1u)));
}

TEST_F(ControlBlockTest, ToldHowManyRowsAreLeftOfHowMany) {
  publish(0, 5);
  claim(2);
  control_.claim(control_.worker(0), [](uint32_t rest, uint32_t n) {
    EXPECT_EQ(rest, 3u);
    EXPECT_EQ(n, 5u);
    return rest;
  });
  EXPECT_FALSE(claim(1));
}

TEST_F(ControlBlockTest, NothingToClaimBeforeTheFirstBatch) {
  EXPECT_FALSE(claim(1));
  EXPECT_EQ(control_.worker(0).claim, WorkerRecord::kIdle);
}

TEST_F(ControlBlockTest, TwoWorkersNeverGetTheSameRow) {
  publish(0, 2);
  EXPECT_EQ(claim(1, 0)->rows.first, 0u);
  EXPECT_EQ(claim(1, 1)->rows.first, 1u);
  EXPECT_FALSE(claim(1, 0));
}

TEST_F(ControlBlockTest, SkipsABatchWhoseRestWasClaimedByMain) {
  publish(0, 5);
  publish(1, 1);
  EXPECT_EQ(control_.slot(0).skip_rest(control_.slot(0).main(0)), 5u);
  EXPECT_EQ(claim(1)->slot, 1u);
}

TEST_F(ControlBlockTest, SkipsGenerationsThatAreOverWhileTheHeadLagged) {
  for (int i = 0; i < 3; ++i) {
    publish(1, 4);
    EXPECT_EQ(control_.slot(1).skip_rest(control_.slot(1).main(static_cast<uint32_t>(i))), 4u);
  }
  publish(1, 4);
  const auto mine = claim(4);
  ASSERT_TRUE(mine);
  EXPECT_EQ(mine->sequence, 3u);
  EXPECT_EQ(mine->rows.first, 0u);
}

TEST_F(ControlBlockTest, GoesOnWhenTheRingHasComeRound) {
  // The ring has room for 4; the slots come in another order each time.
  for (uint32_t sequence = 0; sequence < 50; ++sequence) {
    const uint32_t slot = (sequence * 2) % kSlots;
    publish(slot, 1);
    const auto mine = claim(1);
    ASSERT_TRUE(mine) << sequence;
    EXPECT_EQ(mine->slot, slot);
    EXPECT_EQ(mine->sequence, sequence);
  }
  EXPECT_FALSE(claim(1));
}

TEST_F(ControlBlockTest, KeepsAsManyBatchesInFlightAsItWasMadeFor) {
  for (uint32_t round = 0; round < 3; ++round) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) publish(slot, 1);
    for (uint32_t slot = 0; slot < kSlots; ++slot) EXPECT_EQ(claim(1)->slot, slot);
  }
}

// Seen by a claim that fails, because another worker was faster.
TEST_F(ControlBlockTest, AClaimIsOnRecordBeforeItIsMade) {
  publish(2, 3);
  publish(1, 1);
  std::vector<uint64_t> records;
  const auto mine = control_.claim(control_.worker(1), [&](uint32_t rest, uint32_t) {
    records.push_back(control_.worker(1).claim);
    if (records.size() == 1) claim(rest, 0);
    return rest;
  });
  EXPECT_THAT(records, ElementsAre(WorkerRecord::kIdle, uint64_t{2} << 32));
  ASSERT_TRUE(mine);
  EXPECT_EQ(mine->slot, 1u);
  EXPECT_EQ(control_.worker(1).claim, (uint64_t{1} << 32) + 1);
}

TEST_F(ControlBlockTest, ARecordTellsTheFirstRowOfTheClaim) {
  publish(0, 3);
  claim(2, 0);
  claim(1, 1);
  EXPECT_EQ(control_.worker(0).progress.row, 0u);
  EXPECT_EQ(control_.worker(1).progress.row, 2u);
}

TEST_F(ControlBlockTest, AWorkerThatFindsNothingIsOnRecordAsIdle) {
  publish(0, 1);
  claim(1);
  EXPECT_EQ(control_.worker(0).claim, 0u);
  EXPECT_FALSE(claim(1));
  EXPECT_EQ(control_.worker(0).claim, WorkerRecord::kIdle);
}

TEST_F(ControlBlockTest, CountsItsSleepers) {
  EXPECT_FALSE(control_.has_sleepers());
  control_.begin_sleep();
  control_.begin_sleep();
  control_.end_sleep();
  EXPECT_TRUE(control_.has_sleepers());
  control_.end_sleep();
  EXPECT_FALSE(control_.has_sleepers());
}

TEST_F(ControlBlockTest, PublishingChangesTheWordThatWorkersSleepOn) {
  const uint32_t seen = control_.published_word();
  publish(0, 1);
  EXPECT_NE(control_.published_word(), seen);
  EXPECT_TRUE(claim(1));
}

TEST_F(ControlBlockTest, ACompletedBatchWakesMainOnlyIfMainWantsIt) {
  for (uint32_t slot = 0; slot < kSlots; ++slot) publish(slot, 1);
  const uint32_t seen = control_.events_word();
  EXPECT_FALSE(control_.complete(control_.slot(0), 0, SlotStatus::kReady));
  control_.want(1);
  EXPECT_FALSE(control_.complete(control_.slot(2), 2, SlotStatus::kReady));
  EXPECT_EQ(control_.events_word(), seen);
  EXPECT_TRUE(control_.complete(control_.slot(1), 1, SlotStatus::kFailed));
  EXPECT_NE(control_.events_word(), seen);
  EXPECT_EQ(control_.slot(1).header().status, SlotStatus::kFailed);
}

TEST_F(ControlBlockTest, AnyBatchWakesAMainThatWantsAny) {
  publish(0, 1);
  publish(1, 1);
  control_.want_any();
  EXPECT_TRUE(control_.complete(control_.slot(1), 1, SlotStatus::kReady));
  control_.want_nothing();
  EXPECT_FALSE(control_.complete(control_.slot(0), 0, SlotStatus::kReady));
}

TEST_F(ControlBlockTest, StampsTheOrderOfCompletion) {
  for (uint32_t slot = 0; slot < kSlots; ++slot) publish(slot, 1);
  for (const uint32_t slot : {2u, 0u, 1u}) {
    control_.complete(control_.slot(slot), slot, SlotStatus::kReady);
  }
  const auto stamp = [&](uint32_t slot) { return control_.slot(slot).header().finish_stamp; };
  EXPECT_LT(stamp(2), stamp(0));
  EXPECT_LT(stamp(0), stamp(1));
}

TEST_F(ControlBlockTest, ResetForgetsWorkersAndBatches) {
  publish(0, 4);
  claim(1);
  control_.begin_sleep();
  control_.stop() = 1;
  control_.troubles() = 2;
  control_.want_any();
  control_.worker(0).state = WorkerState::kDead;
  control_.reset();
  EXPECT_FALSE(claim(1));
  EXPECT_FALSE(control_.has_sleepers());
  EXPECT_EQ(control_.stop(), 0u);
  EXPECT_EQ(control_.troubles(), 0u);
  EXPECT_EQ(control_.worker(0).state, WorkerState::kNone);
  EXPECT_FALSE(control_.complete(control_.slot(0), 0, SlotStatus::kReady));
  publish(1, 2);
  EXPECT_EQ(claim(1)->slot, 1u);
}

TEST_F(ControlBlockTest, WorkersHaveRecordsOfTheirOwn) {
  control_.worker(0).progress.row = 7;
  control_.worker(1).progress.row = 8;
  EXPECT_EQ(control_.worker(0).progress.row, 7u);
  EXPECT_EQ(control_.num_workers(), 2u);
}

TEST(ControlSizeTest, IsWholePagesAndGrowsWithWorkersAndBatches) {
  EXPECT_EQ(Control::bytes_needed(3, 5) % Slot::kPage, 0u);
  EXPECT_GE(Control::bytes_needed(4096, 1),
            Control::bytes_needed(0, 1) + 4096 * sizeof(WorkerRecord));
  EXPECT_GE(Control::bytes_needed(0, 8192), Control::bytes_needed(0, 1) + 8192 * 4);
}

// Batch 0 is being drained while many later ones pass through another slot.
TEST_F(ControlBlockTest, ABatchThatIsLongOutOfTheRingIsStillFoundOpen) {
  publish(0, 3);
  ASSERT_TRUE(claim(2));
  for (int batch = 0; batch < 20; ++batch) {
    publish(1, 1);
    control_.slot(1).header().status = SlotStatus::kReady;
  }
  std::vector<Claim> open;
  control_.for_each_open([&](const Claim& one) { open.push_back(one); });
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].slot, 0u);
  EXPECT_EQ(open[0].sequence, 0u);
  EXPECT_EQ(open[0].rows.count, 2u);
}

}  // namespace
}  // namespace stoker::detail
