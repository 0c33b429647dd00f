// SPDX-License-Identifier: BSD-3-Clause
#include "memory/slot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "datasets.h"
#include "memory/control.h"
#include "slot_memory.h"

namespace stoker::detail {
namespace {

void publish(Control& control, uint32_t slot, const std::vector<int64_t>& indices) {
  control.slot(slot).publish(indices, control.published(), {});
  control.publish(slot);
}

std::optional<Claim> claim(Control& control, uint32_t at_most) {
  return control.claim(control.worker(0),
                       [&](uint32_t rest, uint32_t) { return std::min(rest, at_most); });
}

TEST(SlotTest, IsCompleteOnlyWithTheLastRow) {
  HeapSlots memory(1, 1);
  publish(memory.control(), 0, {7, 8, 9});
  const Slot slot = memory.control().slot(0);
  EXPECT_FALSE(settle_rows(slot, {0, 2}));
  EXPECT_TRUE(settle_rows(slot, {2, 1}));
}

TEST(SlotTest, SkippingTheRestLeavesNothingToClaim) {
  HeapSlots memory(1, 1);
  publish(memory.control(), 0, {7, 8, 9});
  ASSERT_TRUE(claim(memory.control(), 1));
  const Slot slot = memory.control().slot(0);
  EXPECT_EQ(slot.skip_rest(slot.main(0)), 2u);
  EXPECT_EQ(slot.skip_rest(slot.main(0)), 0u);
  EXPECT_EQ(slot.state(0), RowState::kPending);
  EXPECT_EQ(slot.state(2), RowState::kSkipped);
  EXPECT_FALSE(claim(memory.control(), 1));
}

TEST(SlotTest, ARowHasOneOwnerAndOnlyInItsOwnGeneration) {
  HeapSlots memory(2, 1);
  publish(memory.control(), 0, {7, 8});
  const Slot slot = memory.control().slot(0);
  EXPECT_TRUE(slot.own(0, Slot::worker(0, 0)));
  EXPECT_FALSE(slot.own(0, Slot::worker(0, 1)));
  EXPECT_FALSE(slot.own(0, Slot::worker(0, 0)));
  EXPECT_FALSE(slot.own(1, Slot::worker(1, 1)));
  slot.settle(0, Slot::worker(0, 0), RowState::kInRows);
  EXPECT_FALSE(slot.own(0, Slot::worker(0, 1)));
  EXPECT_TRUE(slot.own(1, Slot::worker(0, 1)));
}

TEST(SlotTest, CountsOfAGenerationThatIsOverDoNotCount) {
  HeapSlots memory(2, 1);
  const Slot slot = memory.control().slot(0);
  publish(memory.control(), 0, {7, 8});
  EXPECT_TRUE(settle_rows(slot, {0, 2}, 0));
  publish(memory.control(), 0, {7, 8});
  EXPECT_FALSE(settle_rows(slot, {0, 1}, 1));
  EXPECT_FALSE(slot.take_completion(Slot::worker(1, 1)));
  EXPECT_FALSE(slot.finish(Slot::worker(0, 0), 1));  // one that slept
  EXPECT_TRUE(settle_rows(slot, {1, 1}, 0));
}

TEST(SlotTest, OnlyOneCompletesABatch) {
  HeapSlots memory(2, 1);
  publish(memory.control(), 0, {7, 8});
  const Slot slot = memory.control().slot(0);
  EXPECT_FALSE(slot.take_completion(Slot::worker(0, 1)));  // not all rows are counted
  EXPECT_TRUE(settle_rows(slot, {0, 2}, 0));
  EXPECT_FALSE(slot.take_completion(Slot::worker(0, 1)));
}

// A worker that slept since batch 0, of many rows, wakes in batch 1, of few.
TEST(SlotTest, AWorkerThatSleptOwnsNothingOfABatchOfAnotherSize) {
  for (const int64_t before : {1, 2, 3, 4, 7, 40}) {
    for (const int64_t after : {1, 2, 3, 5, 39, 200}) {
      HeapSlots memory(2, 1);
      const Slot slot = memory.control().slot(0);
      publish(memory.control(), 0, Numbers(static_cast<size_t>(before), 0));
      ASSERT_TRUE(settle_rows(slot, {0, static_cast<uint32_t>(before)}, 0));
      publish(memory.control(), 0, Numbers(static_cast<size_t>(after), 0));
      for (uint32_t row = 0; row < 300; ++row) {
        EXPECT_FALSE(slot.own(row, Slot::worker(0, 0))) << before << " " << after << " " << row;
      }
      EXPECT_TRUE(settle_rows(slot, {0, static_cast<uint32_t>(after)}, 1));
    }
  }
}

// A worker that died at each step of its work on two of three rows.
class DisownTest : public testing::Test {
 protected:
  DisownTest() {
    publish(memory_.control(), 0, {7, 8, 9});
    settle_rows(slot_, {2, 1}, 1);  // the other worker's
  }
  // What is left is done by a replacement; true if it must complete the batch.
  bool replacement_completes() {
    slot_.disown(dead_);
    uint32_t done = 0;
    for (uint32_t row = 0; row < 3; ++row) {
      if (!slot_.own(row, dead_)) continue;
      slot_.settle(row, dead_, RowState::kInRows);
      ++done;
    }
    redone_ = done;
    return done > 0 ? slot_.finish(dead_, done) : slot_.take_completion(dead_);
  }

  HeapSlots memory_{2, 1};
  Slot slot_ = memory_.control().slot(0);
  Hand dead_ = Slot::worker(0, 0);
  uint32_t redone_ = 0;
};

TEST_F(DisownTest, BeforeItOwnedARow) {
  EXPECT_TRUE(replacement_completes());
  EXPECT_EQ(redone_, 2u);
}

TEST_F(DisownTest, WhileItWroteItsRows) {
  slot_.own(0, dead_);
  slot_.own(1, dead_);
  EXPECT_TRUE(replacement_completes());
  EXPECT_EQ(redone_, 2u);
}

TEST_F(DisownTest, WithOneRowSettledAndNotCounted) {
  slot_.own(0, dead_);
  slot_.own(1, dead_);
  slot_.settle(0, dead_, RowState::kInRows);
  EXPECT_TRUE(replacement_completes());
  EXPECT_EQ(redone_, 1u);
}

TEST_F(DisownTest, WithItsRowsSettledAndNotCounted) {
  for (uint32_t row : {0, 1}) {
    slot_.own(row, dead_);
    slot_.settle(row, dead_, RowState::kInRows);
  }
  EXPECT_TRUE(replacement_completes());
  EXPECT_EQ(redone_, 0u);
}

TEST_F(DisownTest, WhileItCompletedTheBatch) {
  EXPECT_TRUE(settle_rows(slot_, {0, 2}, 0));
  EXPECT_TRUE(replacement_completes());
  EXPECT_EQ(redone_, 0u);
}

TEST_F(DisownTest, AfterTheBatchWasCompleted) {
  EXPECT_TRUE(settle_rows(slot_, {0, 2}, 0));
  slot_.header().status = SlotStatus::kReady;
  EXPECT_FALSE(replacement_completes());
}

TEST_F(DisownTest, WhatOthersOwnIsLeftToThem) {
  slot_.own(0, Slot::worker(0, 1));
  EXPECT_FALSE(replacement_completes());
  EXPECT_EQ(redone_, 1u);
  EXPECT_FALSE(slot_.own(0, dead_));
}

TEST(SlotTest, AllocateEndsWhereTheSlotEnds) {
  HeapSlots memory(1, 1);
  publish(memory.control(), 0, {1});
  const Slot slot = memory.control().slot(0);
  EXPECT_EQ(slot.allocate(1), slot.bytes() / 2);
  EXPECT_EQ(slot.allocate(1), slot.bytes() / 2 + 64);
  EXPECT_FALSE(slot.allocate(slot.bytes()));
  EXPECT_TRUE(slot.allocate(slot.open_capacity() - 128));
  EXPECT_FALSE(slot.allocate(1));
}

TEST(SlotTest, ALayoutIsKeptForTheNextBatchUnlessItWasNotFinished) {
  HeapSlots memory(1, 1);
  const Slot slot = memory.control().slot(0);
  publish(memory.control(), 0, {1});
  auto& state = slot.header().layout_state;
  EXPECT_EQ(state, LayoutState::kNone);
  EXPECT_FALSE(slot.fixed_layout());
  state = LayoutState::kFixedNew;
  const uint64_t place = slot.fixed_layout().value();
  publish(memory.control(), 0, {1});
  EXPECT_EQ(state, LayoutState::kTentative);
  EXPECT_EQ(slot.kept_layout(), place);
  state = LayoutState::kWriting;
  publish(memory.control(), 0, {1});
  EXPECT_EQ(state, LayoutState::kNone);
}

TEST(SlotProtocolTest, TheOldestBatchIsClaimedFirst) {
  HeapSlots memory(1, 2);
  publish(memory.control(), 1, {1, 2});
  publish(memory.control(), 0, {3});
  EXPECT_EQ(claim(memory.control(), 1)->slot, 1u);
  EXPECT_EQ(claim(memory.control(), 5)->rows.first, 1u);
  EXPECT_EQ(claim(memory.control(), 5)->slot, 0u);
  EXPECT_FALSE(claim(memory.control(), 5));
}

TEST(SlotProtocolTest, AClaimFindsABatchWhoseSlotWasUsedBeforeTheHeadMoved) {
  HeapSlots memory(1, 1);
  publish(memory.control(), 0, {1});
  ASSERT_TRUE(claim(memory.control(), 1));
  publish(memory.control(), 0, {2});  // the head still points to the first
  const auto second = claim(memory.control(), 1);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->sequence, 1u);
}

TEST(SlotProtocolTest, AWorkerRecordsWhatItClaims) {
  HeapSlots memory(1, 1);
  publish(memory.control(), 0, {1, 2});
  claim(memory.control(), 1);
  claim(memory.control(), 1);
  EXPECT_EQ(memory.control().worker(0).progress.row, 1u);
  EXPECT_EQ(memory.control().worker(0).claim, 0u);
  claim(memory.control(), 1);
  EXPECT_EQ(memory.control().worker(0).claim, WorkerRecord::kIdle);
}

TEST(SlotProtocolTest, OnlyTheBatchThatMainWantsWakesIt) {
  HeapSlots memory(1, 2);
  publish(memory.control(), 0, {1});
  publish(memory.control(), 1, {2});
  Control& control = memory.control();
  control.want(1);
  EXPECT_FALSE(control.complete(control.slot(0), 0, SlotStatus::kReady));
  EXPECT_TRUE(control.complete(control.slot(1), 1, SlotStatus::kReady));
  EXPECT_LT(control.slot(0).header().finish_stamp, control.slot(1).header().finish_stamp);
}

// A worker as it is in worker_loop, but for sleeping: writes each row's index, twice over.
void work(Control& control, uint32_t id) {
  while (control.stop().load() == 0) {
    const auto mine = control.claim(
        control.worker(id), [](uint32_t rest, uint32_t n) { return std::min(rest, n / 4 + 1); });
    if (!mine) {
      std::this_thread::yield();
      continue;
    }
    const Slot slot = control.slot(mine->slot);
    auto* rows = reinterpret_cast<size_t*>(slot.at(slot.rows_begin()));
    const Hand me = Slot::worker(mine->sequence, id);
    uint32_t done = 0;
    for (uint32_t i = mine->rows.first; i < mine->rows.first + mine->rows.count; ++i) {
      if (!slot.own(i, me)) continue;
      rows[i] = 2 * slot.indices()[i];
      slot.settle(i, me, RowState::kInRows);
      ++done;
    }
    if (done > 0 && slot.finish(me, done)) {
      control.complete(slot, mine->sequence, SlotStatus::kReady);
    }
  }
}

// Batch k of n samples: what came out. Every fifth is cancelled instead.
void take(Slot slot, int64_t k) {
  if (k % 5 == 4) {
    cancel_rest(slot);
  }
  while (slot.header().status.load(std::memory_order_seq_cst) == SlotStatus::kOpen) {
    std::this_thread::yield();
  }
  if (k % 5 == 4) return;
  const auto* rows = reinterpret_cast<const size_t*>(slot.at(slot.rows_begin()));
  for (size_t i = 0; i < slot.num_samples(); ++i) {
    ASSERT_EQ(slot.state(i), RowState::kInRows);
    ASSERT_EQ(rows[i], 2 * (static_cast<size_t>(k) * 100 + i));
  }
}

// What is reckoned from it would lie outside of the slot.
TEST(SlotTest, ADamagedNumberOfSamplesIsNoMoreThanASlotHolds) {
  HeapSlot memory;
  const Slot slot = memory.publish({1, 2});
  slot.header().num_samples = UINT32_MAX;
  EXPECT_TRUE(Slot::has_room(slot.bytes(), slot.num_samples()));
  EXPECT_FALSE(Slot::has_room(slot.bytes(), slot.num_samples() + Slot::kPage));
  EXPECT_LE(slot.rows_begin(), slot.bytes() / 2);
}

TEST(SlotProtocolTest, ThreadsFillEveryRowOfEveryBatchAlsoWhereSlotsAreUsedAgain) {
  constexpr uint32_t kSlots = 3;
  constexpr int64_t kBatches = 3000;
  HeapSlots memory(4, kSlots);
  Control& control = memory.control();
  std::vector<std::thread> workers;
  for (uint32_t id = 0; id < 4; ++id) workers.emplace_back(work, std::ref(control), id);
  const auto open = [&](int64_t k) {
    std::vector<int64_t> indices(static_cast<size_t>(1 + k % 37));
    std::iota(indices.begin(), indices.end(), k * 100);
    publish(control, static_cast<uint32_t>(k % kSlots), indices);
  };
  for (int64_t k = 0; k < kSlots; ++k) open(k);
  for (int64_t k = 0; k < kBatches; ++k) {
    take(control.slot(static_cast<uint32_t>(k % kSlots)), k);
    if (k + kSlots < kBatches) open(k + kSlots);
  }
  control.stop() = 1;
  for (auto& worker : workers) worker.join();
}

}  // namespace
}  // namespace stoker::detail
