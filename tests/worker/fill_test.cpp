// SPDX-License-Identifier: BSD-3-Clause
#include "worker/fill.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/worker.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <vector>

#include "datasets.h"
#include "slot_memory.h"
#include "worker/randomness.h"

namespace stoker::detail {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

template <class Make>
auto fetcher_of(Make make) {
  return MapFetcher(Made(1000, std::move(make)));
}

RowState state(Slot slot, size_t row) { return slot.state(row); }

TEST(FillTest, WritesEachSampleAtItsRow) {
  auto fetcher = fetcher_of([](size_t i) { return static_cast<int64_t>(10 * i); });
  HeapSlot memory;
  const Slot slot = memory.publish({5, 3, 4});
  EXPECT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kReady);
  EXPECT_THAT(column<int64_t>(slot, 0), ElementsAre(50, 30, 40));
}

TEST(FillTest, OnlyTheClaimedRowsAreRun) {
  std::vector<size_t> run;
  auto fetcher = fetcher_of([&](size_t i) {
    run.push_back(i);
    return 1;
  });
  HeapSlot memory;
  const Slot slot = memory.publish({7, 8, 9, 10});
  EXPECT_FALSE(HandWorker(fetcher).work(slot, {1, 2}));
  EXPECT_THAT(run, ElementsAre(8, 9));
  EXPECT_EQ(state(slot, 0), RowState::kPending);
  EXPECT_EQ(state(slot, 1), RowState::kInRows);
  EXPECT_EQ(state(slot, 3), RowState::kPending);
}

TEST(FillTest, TellsWhichRowIsWorkedOn) {
  Progress progress;
  progress.row = 99;
  std::vector<uint32_t> seen;
  auto fetcher = fetcher_of([&](size_t) {
    seen.push_back(progress.row);
    return 1;
  });
  HeapSlot memory;
  Filler(fetcher, 0, 1).fill(memory.publish({1, 2, 3}), 0, {0, 3}, progress);
  EXPECT_THAT(seen, ElementsAre(0, 1, 2));
}

TEST(FillTest, TellsSinceWhenIfAsked) {
  Progress progress;
  std::vector<int64_t> seen;
  auto fetcher = fetcher_of([&](size_t) {
    seen.push_back(progress.since);
    return 1;
  });
  HeapSlot memory;
  Filler(fetcher, 0, 1).fill(memory.publish({1}), 0, {0, 1}, progress);
  Filler(fetcher, 0, 1, {.timed = true}).fill(memory.publish({1, 2}), 1, {0, 2}, progress);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0], 0);
  EXPECT_GT(seen[1], 0);
  EXPECT_GE(seen[2], seen[1]);
  EXPECT_EQ(progress.since, 0);
}

TEST(FillTest, RowsThatOthersOwnAreLeftAlone) {
  std::vector<size_t> seen;
  auto fetcher = fetcher_of([&](size_t index) {
    seen.push_back(index);
    return 1;
  });
  HeapSlot memory;
  const Slot slot = memory.publish({5, 6, 7});
  ASSERT_TRUE(slot.own(1, Slot::worker(0, 3)));
  EXPECT_FALSE(HandWorker(fetcher).work(slot, {0, 3}));
  EXPECT_THAT(seen, ElementsAre(5, 7));
  EXPECT_EQ(state(slot, 1), RowState::kPending);
}

TEST(FillTest, TheSampleKnowsItsWorkerAndItsSeed) {
  std::vector<WorkerInfo> infos;
  auto fetcher = fetcher_of([&](size_t) {
    infos.push_back(worker_info().value());
    return 1;
  });
  HeapSlot memory;
  HandWorker(fetcher, 3).work(memory.publish({8, 9}, 77, 100), {0, 2});
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_EQ(infos[0].id, 3);
  EXPECT_EQ(infos[0].num_workers, 4);
  EXPECT_EQ(infos[0].seed, sample_seed(77, 100));
  EXPECT_EQ(infos[1].seed, sample_seed(77, 101));
  EXPECT_FALSE(worker_info());
}

TEST(FillTest, ACancelledBatchIsNotRun) {
  int runs = 0;
  auto fetcher = fetcher_of([&](size_t) { return ++runs; });
  HeapSlot memory;
  const Slot slot = memory.publish({1, 2});
  slot.header().cancelled = 1;
  EXPECT_TRUE(HandWorker(fetcher).work(slot, {0, 2}));
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(collate(slot, fetcher, 0), SlotStatus::kReady);
}

TEST(FillTest, ABatchCancelledInTheMiddleStopsThere) {
  HeapSlot memory;
  const Slot slot = memory.publish({1, 2, 3});
  int runs = 0;
  auto fetcher = fetcher_of([&](size_t) {
    slot.header().cancelled = 1;
    return ++runs;
  });
  EXPECT_TRUE(HandWorker(fetcher).work(slot, {0, 3}));
  EXPECT_EQ(runs, 1);
}

// Throws at one index.
auto throwing_at(size_t bad) {
  return fetcher_of([bad](size_t i) {
    if (i == bad) throw std::out_of_range("no sample " + std::to_string(i));
    return static_cast<int64_t>(i);
  });
}

TEST(FillTest, AnExceptionFailsItsRowAndEndsTheBatch) {
  auto fetcher = throwing_at(8);
  HeapSlot memory;
  const Slot slot = memory.publish({7, 8, 9, 10, 11});
  HandWorker worker(fetcher, 2);
  // Rows 3 and 4, which nobody claimed, count as done.
  EXPECT_TRUE(worker.work(slot, memory.claim(3)));
  EXPECT_EQ(state(slot, 0), RowState::kInRows);
  EXPECT_EQ(state(slot, 1), RowState::kFailed);
  EXPECT_EQ(state(slot, 2), RowState::kSkipped);
  EXPECT_EQ(worker.row(), 1u);
  const Failure failure = load_failure(slot, slot.records()[1]);
  EXPECT_EQ(failure.worker_id, 2);
  EXPECT_EQ(failure.pid, getpid());
  EXPECT_EQ(failure.index, 8u);
  EXPECT_EQ(failure.type_name, "std::out_of_range");
  EXPECT_EQ(failure.text, "no sample 8");
}

TEST(FillTest, TheBatchWaitsForRowsThatOthersHaveClaimed) {
  auto fetcher = throwing_at(8);
  HeapSlot memory;
  const Slot slot = memory.publish({7, 8, 9, 10});
  const RowRange others = memory.claim(1);
  EXPECT_FALSE(HandWorker(fetcher).work(slot, memory.claim(1)));
  EXPECT_TRUE(settle_rows(slot, others, 1));
}

TEST(FillTest, TheExceptionItselfIsThereForTheProgramsOwnProcess) {
  auto fetcher = throwing_at(8);
  HeapSlot memory;
  HandWorker worker(fetcher, std::nullopt);
  const Slot slot = memory.publish({8});
  worker.work(slot, memory.claim(1));
  EXPECT_THROW(std::rethrow_exception(worker.filler().take_error()), std::out_of_range);
  EXPECT_EQ(worker.filler().take_error(), nullptr);
  EXPECT_FALSE(load_failure(slot, slot.records()[0]).worker_id);
}

TEST(FillTest, AnyTypeMayBeThrown) {
  auto fetcher = fetcher_of([](size_t i) -> int {
    if (i == 1) throw 42;
    return 0;
  });
  HeapSlot memory;
  const Slot slot = memory.publish({0, 1});
  ASSERT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kFailed);
  EXPECT_EQ(failure_of(slot).type_name, "int");
  EXPECT_EQ(failure_of(slot).index, 1u);
}

TEST(FillTest, ATensorThatNoBatchCanHoldFailsItsRow) {
  auto fetcher =
      fetcher_of([](size_t i) { return std::pair(1, i == 1 ? at::Tensor() : at::ones({2})); });
  HeapSlot memory;
  for (const std::vector<int64_t>& indices : {Numbers{0, 1}, Numbers{1, 0}, Numbers{1}}) {
    const Slot slot = memory.publish(indices);
    ASSERT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kFailed);
    EXPECT_EQ(failure_of(slot).index, 1u);
    EXPECT_EQ(failure_of(slot).text, "stoker: the sample's field [1] is an undefined tensor");
  }
}

TEST(FillTest, ASlotWhoseSampleWasRefusedIsUsedAgain) {
  bool good = false;
  auto fetcher = fetcher_of([&](size_t) { return good ? at::ones({2}) : at::Tensor(); });
  HeapSlot memory;
  EXPECT_EQ(fill_and_collate(memory.publish({0}), fetcher), SlotStatus::kFailed);
  good = true;
  const Slot slot = memory.publish({0, 1});
  ASSERT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kReady);
  EXPECT_THAT(column<float>(slot, 0), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(state(slot, 0), RowState::kInRows);
}

TEST(FillTest, TheLayoutIsKeptFromBatchToBatch) {
  auto fetcher = fetcher_of([](size_t i) { return at::full({3}, static_cast<int>(i), at::kInt); });
  HeapSlot memory;
  const Slot slot = memory.slot();
  fill_and_collate(memory.publish({1, 2}), fetcher);
  EXPECT_EQ(slot.header().layout_state, LayoutState::kFixedNew);
  fill_and_collate(memory.publish({3}), fetcher);
  EXPECT_EQ(slot.header().layout_state, LayoutState::kFixedKept);
  fill_and_collate(memory.publish({4, 5}), fetcher);
  EXPECT_EQ(slot.header().layout_state, LayoutState::kFixedKept);
  EXPECT_THAT(column<int>(slot, 0), ElementsAre(4, 4, 4, 5, 5, 5));
}

TEST(FillTest, ALayoutThatNoLongerFitsIsReplaced) {
  auto fetcher =
      fetcher_of([](size_t i) { return at::full({static_cast<int64_t>(i)}, 7, at::kInt); });
  HeapSlot memory;
  for (const int64_t length : {2, 3, 3, 2, 1, 1}) {
    const Slot slot = memory.publish({length, length});
    ASSERT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kReady);
    EXPECT_EQ(column<int>(slot, 0).size(), static_cast<size_t>(2 * length));
    EXPECT_THAT(column<int>(slot, 0), Each(7));
    EXPECT_EQ(state(slot, 0), RowState::kInRows);
  }
}

TEST(FillTest, ABatchThatHasNoRoomForItsRowsSaysSo) {
  HeapSlot memory;
  auto fetcher = fetcher_of([](size_t) { return at::zeros({1 << 20}); });  // 4 MB
  const Slot slot = memory.publish({3});
  ASSERT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kFailed);
  EXPECT_EQ(failure_of(slot).type_name, "std::length_error");
  EXPECT_EQ(
      failure_of(slot).text,
      "stoker: a batch of 1 such samples takes 4 MB, and it may take 0.957 MB of shared memory; "
      "use a smaller batch_size or prefetch_factor, or raise shared_memory_limit");
  EXPECT_EQ(failure_of(slot).index, 3u);
}

TEST(FillTest, StringsThatHaveNoRoomSaySo) {
  HeapSlot memory;
  auto fetcher = fetcher_of([](size_t) { return std::string((1 << 20) + 1, 'x'); });
  const Slot slot = memory.publish({3, 4, 5});
  ASSERT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kFailed);
  EXPECT_THAT(failure_of(slot).text, AllOf(HasSubstr("a batch of 3 such samples takes 2 MB"),
                                           HasSubstr("shared_memory_limit")));
  EXPECT_EQ(failure_of(slot).index, 4u);
}

// A tiny sample is written while the next one is fetched, whatever becomes of that.
TEST(FillTest, ASampleThatFailsDoesNotTouchTheOneBefore) {
  const auto make = [](size_t i) {
    const at::Tensor sample = at::full({16}, static_cast<double>(i), at::kFloat);
    if (i % 3 == 0) throw std::runtime_error("broken");
    return sample;
  };
  for (const OnError on_error : {OnError::kRaise, OnError::kSkip, OnError::kSubstitute}) {
    auto fetcher = fetcher_of(make);
    Filler filler(fetcher, 0, 1, {.on_error = on_error});
    HeapSlot memory;
    const Slot slot = memory.publish({1, 2, 3, 6, 9, 4, 5, 12});
    Progress progress;
    slot.finish(filler.hand(slot, 0), filler.fill(slot, 0, {0, 8}, progress));
    slot.header().result_layout = slot.fixed_layout().value();
    slot.header().result_rows = slot.rows_begin();
    const auto values = column<float>(slot, 0);
    const auto value = [&](size_t row) { return values[row * 16 + 15]; };
    EXPECT_EQ(value(0), 1);
    EXPECT_EQ(value(1), 2);
    if (on_error == OnError::kRaise) continue;
    EXPECT_EQ(value(5), 4);
    EXPECT_EQ(value(6), 5);
    if (on_error == OnError::kSkip) continue;
    EXPECT_EQ(value(2), 4);
    EXPECT_EQ(value(7), 1);
  }
}

TEST(FillTest, SamplesOfOtherShapesInBetweenAreKept) {
  auto fetcher = fetcher_of(
      [](size_t i) { return at::full({i % 2 == 0 ? 2 : 3}, static_cast<double>(i), at::kFloat); });
  HeapSlot memory;
  const Slot slot = memory.publish({2, 4, 1, 6, 8, 3, 10});
  EXPECT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kFailed);
  EXPECT_THAT(failure_of(slot).text, HasSubstr("samples 2 and 1: Float [2] and Float [3]"));
  for (const size_t row : {0, 1, 3, 4, 6}) EXPECT_EQ(state(slot, row), RowState::kInRows);
  for (const size_t row : {2, 5}) EXPECT_EQ(state(slot, row), RowState::kSpilled);
}

}  // namespace
}  // namespace stoker::detail
