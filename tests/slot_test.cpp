// SPDX-License-Identifier: BSD-3-Clause
#include "slot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "control.h"
#include "slot_memory.h"

namespace stoker::detail {
namespace {

void publish(Control& control, uint32_t slot, const std::vector<int64_t>& indices) {
  control.slot(slot).publish(indices, control.published(), 0, 0);
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
  EXPECT_FALSE(slot.finish(2));
  EXPECT_TRUE(slot.finish(1));
}

TEST(SlotTest, ClaimRestLeavesNothingToClaim) {
  HeapSlots memory(1, 1);
  publish(memory.control(), 0, {7, 8, 9});
  ASSERT_TRUE(claim(memory.control(), 1));
  EXPECT_EQ(memory.control().slot(0).claim_rest(), 2u);
  EXPECT_EQ(memory.control().slot(0).claim_rest(), 0u);
  EXPECT_FALSE(claim(memory.control(), 1));
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
  EXPECT_EQ(memory.control().worker(0).row, 1u);
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
    for (uint32_t i = mine->rows.first; i < mine->rows.first + mine->rows.count; ++i) {
      rows[i] = 2 * slot.indices()[i];
      slot.states()[i].store(RowState::kInRows, std::memory_order_relaxed);
    }
    if (slot.finish(mine->rows.count)) {
      control.complete(slot, mine->sequence, SlotStatus::kReady);
    }
  }
}

// Batch k of n samples: what came out. Every fifth is cancelled instead.
void take(Slot slot, int64_t k) {
  if (k % 5 == 4) {
    slot.header().cancelled.store(1, std::memory_order_relaxed);
    const uint32_t rest = slot.claim_rest();
    if (rest > 0 && slot.finish(rest)) slot.header().status.store(SlotStatus::kReady);
  }
  while (slot.header().status.load(std::memory_order_seq_cst) == SlotStatus::kOpen) {
    std::this_thread::yield();
  }
  if (k % 5 == 4) return;
  const auto* rows = reinterpret_cast<const size_t*>(slot.at(slot.rows_begin()));
  for (size_t i = 0; i < slot.num_samples(); ++i) {
    ASSERT_EQ(slot.states()[i].load(), RowState::kInRows);
    ASSERT_EQ(rows[i], 2 * (static_cast<size_t>(k) * 100 + i));
  }
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
