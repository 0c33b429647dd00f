// SPDX-License-Identifier: BSD-3-Clause
#include "worker/collate.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "datasets.h"
#include "slot_memory.h"

namespace stoker::detail {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kReady = SlotStatus::kReady;
constexpr auto kFailed = SlotStatus::kFailed;

TEST(CollateTest, RowsThatMatchStayWhereTheyAre) {
  MapFetcher fetcher(Made(100, [](size_t i) { return std::pair(i, i % 2 == 0); }));
  HeapSlot memory;
  const Slot slot = memory.publish({4, 5, 6});
  ASSERT_EQ(fill_and_collate(slot, fetcher), kReady);
  EXPECT_EQ(slot.header().result_rows, slot.rows_begin());
  EXPECT_EQ(slot.header().open_used, 0u);
  EXPECT_THAT(column<size_t>(slot, 0), ElementsAre(4, 5, 6));
  EXPECT_THAT(column<uint8_t>(slot, 1), ElementsAre(1, 0, 1));
}

// What a worker finds whose sample is finished while another writes the layout.
TEST(CollateTest, SpilledSamplesAreCopiedToTheirRows) {
  MapFetcher fetcher(Made(100, [](size_t i) {
    return std::tuple(at::full({2}, static_cast<int>(i), at::kInt), std::to_string(i));
  }));
  HeapSlot memory;
  const Slot slot = memory.publish({7, 8, 9});
  HandWorker worker(fetcher);
  slot.header().layout_state = LayoutState::kWriting;
  worker.work(slot, {0, 1});
  worker.work(slot, {1, 1});
  EXPECT_EQ(slot.state(1), RowState::kSpilled);
  slot.header().layout_state = LayoutState::kNone;
  EXPECT_TRUE(worker.work(slot, {2, 1}));
  EXPECT_EQ(slot.state(2), RowState::kInRows);
  ASSERT_EQ(collate(slot, fetcher, 0), kReady);
  EXPECT_EQ(slot.header().result_rows, slot.rows_begin());
  EXPECT_THAT(column<int>(slot, 0), ElementsAre(7, 7, 8, 8, 9, 9));
  EXPECT_THAT(strings(slot, 1), ElementsAre("7", "8", "9"));
}

TEST(CollateTest, ABatchOfSpilledSamplesOnlyIsStackedInTheOpenEnd) {
  MapFetcher fetcher(Made(100, [](size_t i) {
    return std::tuple(at::full({2}, static_cast<int>(i), at::kInt), std::to_string(i));
  }));
  HeapSlot memory;
  const Slot slot = memory.publish({7, 8});
  slot.header().layout_state = LayoutState::kWriting;
  ASSERT_EQ(fill_and_collate(slot, fetcher), kReady);
  EXPECT_GE(slot.header().result_rows, slot.bytes() / 2);
  EXPECT_THAT(column<int>(slot, 0), ElementsAre(7, 7, 8, 8));
  EXPECT_THAT(strings(slot, 1), ElementsAre("7", "8"));
}

// A slot of 3 MB has half a megabyte for rows and more than one of open end: for the samples and,
// once more, for their batch.
TEST(CollateTest, ABatchThatDoesNotFitTheRowsMayFitTheOpenEnd) {
  MapFetcher fetcher(
      Made(1'000'000, [](size_t i) { return at::full({static_cast<int64_t>(i)}, 5, at::kByte); }));
  HeapSlot memory(3 << 20);
  const Slot slot = memory.slot();
  ASSERT_EQ(fill_and_collate(memory.publish(Numbers(4, 150'000)), fetcher), kReady);
  EXPECT_EQ(slot.header().layout_state, LayoutState::kUnfit);
  EXPECT_GE(slot.header().result_rows, slot.bytes() / 2);
  EXPECT_THAT(column<uint8_t>(slot, 0), Each(5));
  ASSERT_EQ(fill_and_collate(memory.publish(Numbers(4, 200'000)), fetcher), kFailed);
  EXPECT_EQ(failure_of(slot).text,
            "stoker: a batch of 4 such samples takes 0.763 MB, and it may take 0.457 MB of shared "
            "memory; use a smaller batch_size or prefetch_factor, or raise shared_memory_limit");
}

TEST(CollateTest, TheKeptLayoutServesAMixOfKeptAndSpilledRows) {
  MapFetcher fetcher(Made(100, [](size_t i) { return static_cast<int64_t>(i); }));
  HeapSlot memory;
  fill_and_collate(memory.publish({1, 2}), fetcher);
  const Slot slot = memory.publish({3, 4});
  HandWorker worker(fetcher);
  worker.work(slot, {1, 1});
  EXPECT_EQ(slot.header().layout_state, LayoutState::kFixedKept);
  worker.work(slot, {0, 1});
  ASSERT_EQ(collate(slot, fetcher, 0), kReady);
  EXPECT_THAT(column<int64_t>(slot, 0), ElementsAre(3, 4));
}

// What a batch of these two samples, at indices 10 and 20, fails with.
template <class Sample>
std::string mismatch(const Sample& first, const Sample& second) {
  MapFetcher fetcher(Made(100, [&](size_t i) { return i == 20 ? second : first; }));
  std::vector<std::string> texts;
  for (const bool spill : {false, true}) {
    HeapSlot memory;
    const Slot slot = memory.publish({10, 10, 20});
    if (spill) slot.header().layout_state = LayoutState::kWriting;
    EXPECT_EQ(fill_and_collate(slot, fetcher), kFailed);
    const Failure failure = failure_of(slot);
    EXPECT_EQ(failure.worker_id, 0);
    EXPECT_EQ(failure.pid, getpid());
    EXPECT_EQ(failure.type_name, "");
    EXPECT_FALSE(failure.index);
    texts.push_back(failure.text);
  }
  EXPECT_EQ(texts[0], texts[1]) << "it matters where the samples lay";
  return texts[0];
}

TEST(CollateMismatchTest, NamesBothShapes) {
  EXPECT_EQ(mismatch(at::zeros({3, 4}), at::zeros({3, 5})),
            "stoker: cannot collate samples 10 and 20: Float [3, 4] and Float [3, 5] (all samples "
            "of a batch must have the same shape and dtype)");
}

TEST(CollateMismatchTest, NamesBothDtypesAndTheField) {
  const auto sample = [](at::ScalarType dtype) { return std::pair(1, at::zeros({2}, dtype)); };
  EXPECT_EQ(mismatch(sample(at::kInt), sample(at::kBool)),
            "stoker: cannot collate field [1] of samples 10 and 20: Int [2] and Bool [2] (all "
            "samples of a batch must have the same shape and dtype)");
}

TEST(CollateMismatchTest, NamesTheWholePath) {
  using Sample = std::map<std::string, std::vector<at::Tensor>>;
  const Sample first{{"boxes", {at::zeros({1}), at::zeros({1})}}};
  const Sample second{{"boxes", {at::zeros({1}), at::zeros({2})}}};
  EXPECT_THAT(mismatch(first, second),
              HasSubstr("cannot collate field [\"boxes\"][1] of samples 10 and 20: Float [1] and "
                        "Float [2]"));
}

TEST(CollateMismatchTest, NamesTheLeafThatOnlyOneSampleHas) {
  using Sample = std::vector<int>;
  EXPECT_EQ(mismatch<Sample>({1, 2}, {1, 2, 3}),
            "stoker: cannot collate samples 10 and 20: only the second has field [2] (lengths and "
            "keys must agree)");
  EXPECT_THAT(mismatch<Sample>({1}, {}), HasSubstr("only the first has field [0]"));
}

TEST(CollateMismatchTest, NamesWhatEitherSampleHasAtThatPlace) {
  using Sample = std::map<std::string, int>;
  EXPECT_EQ(mismatch(Sample{{"a", 1}, {"b", 2}}, Sample{{"a", 1}, {"c", 2}}),
            "stoker: cannot collate samples 10 and 20: where the first has field [\"b\"], the "
            "second has [\"c\"] (lengths and keys must agree)");
  EXPECT_THAT(mismatch(std::pair(std::vector{1, 2}, 3), std::pair(std::vector{1}, 3)),
              HasSubstr("where the first has field [0][1], the second has [1]"));
}

TEST(CollateMismatchTest, LengthsMayDifferWithoutAnyLeaf) {
  using Sample = std::pair<std::vector<std::array<int, 0>>, int>;
  EXPECT_EQ(mismatch(Sample{{{}}, 1}, Sample{{}, 1}),
            "stoker: cannot collate samples 10 and 20: their lengths or keys differ");
}

// Rows 1 and 3 of five fail, in either order.
TEST(CollateTest, TheLowestRowThatFailedIsTold) {
  MapFetcher fetcher(Made(100, [](size_t i) -> int {
    if (i % 2 == 1) throw std::runtime_error("odd " + std::to_string(i));
    return 0;
  }));
  using Order = std::vector<uint32_t>;
  for (const Order& order : {Order{0, 1, 2, 3, 4}, Order{4, 3, 2, 1, 0}}) {
    HeapSlot memory;
    const Slot slot = memory.publish({20, 21, 22, 23, 24});
    memory.claim(5);  // five workers, a row each
    HandWorker worker(fetcher);
    for (const uint32_t row : order) worker.work(slot, {row, 1});
    ASSERT_EQ(collate(slot, fetcher, 0), kFailed);
    EXPECT_EQ(failure_of(slot).text, "odd 21");
    EXPECT_EQ(failure_of(slot).index, 21u);
  }
}

TEST(CollateTest, AFailureIsToldBeforeAMismatch) {
  MapFetcher fetcher(Made(100, [](size_t i) -> at::Tensor {
    if (i == 22) throw std::runtime_error("thrown");
    return at::zeros({static_cast<int64_t>(i)});
  }));
  HeapSlot memory;
  const Slot slot = memory.publish({20, 21, 22});
  ASSERT_EQ(fill_and_collate(slot, fetcher), kFailed);
  EXPECT_EQ(failure_of(slot).text, "thrown");
}

TEST(CollateTest, ACancelledBatchIsNeverAFailure) {
  MapFetcher fetcher(Made(100, [](size_t) -> int { throw std::runtime_error("thrown"); }));
  HeapSlot memory;
  const Slot slot = memory.publish({20, 21});
  HandWorker(fetcher).work(slot, memory.claim(1));
  slot.header().cancelled = 1;
  EXPECT_EQ(collate(slot, fetcher, 0), kReady);
}

class DamagedSpillTest : public testing::Test {
 protected:
  // Three samples beside their rows, which is where damage can lead astray.
  DamagedSpillTest() {
    slot_.header().layout_state = LayoutState::kUnfit;
    HandWorker(fetcher_).work(slot_, {0, 3});
  }
  std::string outcome() {
    return collate(slot_, fetcher_, 0) == kFailed ? failure_of(slot_).text : "nothing was found";
  }

  MapFetcher<Counting> fetcher_{Counting{100}};
  HeapSlot memory_;
  Slot slot_ = memory_.publish({7, 8, 9});
};

TEST_F(DamagedSpillTest, ARecordThatLiesElsewhere) {
  for (const uint64_t place :
       {uint64_t{0}, slot_.bytes() - 64, slot_.records()[1] + 1, ~uint64_t{63}}) {
    slot_.records()[1] = place;
    EXPECT_THAT(outcome(), HasSubstr("the layout of a batch in shared memory is damaged"));
  }
}

TEST_F(DamagedSpillTest, ARecordThatEndsBehindWhatWasWritten) {
  // The layout fits, the row behind it does not.
  const RowLayout layout(slot_.at(slot_.records()[0]));
  const uint64_t place = slot_.bytes() / 2 + slot_.header().open_used - layout.encoded_bytes();
  std::memcpy(slot_.at(place), slot_.at(slot_.records()[0]), layout.encoded_bytes());
  slot_.records()[2] = place;
  EXPECT_THAT(outcome(), HasSubstr("a sample of a batch in shared memory is damaged"));
}

TEST_F(DamagedSpillTest, RowsWithoutALayout) {
  settle_rows(memory_.publish({1, 2}), {0, 2});
  EXPECT_THAT(outcome(), HasSubstr("the header of a batch in shared memory is damaged"));
}

TEST_F(DamagedSpillTest, ARowThatNobodyFinished) {
  memory_.publish({1, 2});
  EXPECT_THAT(outcome(), HasSubstr("a row's state of a batch in shared memory is damaged"));
  settle_rows(memory_.publish({1, 2}), {0, 2}, 0, RowState::kSkipped);
  EXPECT_THAT(outcome(), HasSubstr("a row's state of a batch in shared memory is damaged"));
  settle_rows(memory_.publish({1, 2}), {0, 2}, 0, static_cast<RowState>(77));
  EXPECT_THAT(outcome(), HasSubstr("a row's state of a batch in shared memory is damaged"));
}

// Where shapes depend on random numbers, a second run's may be larger than the first one's, which
// fixed the layout.
TEST(CollateTest, SpilledSamplesThatDoNotFitTheFixedRowsAreRefused) {
  MapFetcher fetcher(Made(100, [](size_t) { return at::zeros({1 << 14}, at::kInt); }));
  HeapSlot memory;
  const Slot slot = memory.publish({1, 2});
  slot.header().layout_state = LayoutState::kUnfit;
  HandWorker(fetcher).work(slot, {0, 2});
  slot.header().layout_state = LayoutState::kFixedNew;
  slot.header().budget = 100 << 10;
  EXPECT_EQ(collate(slot, fetcher, 0), kFailed);
  EXPECT_THAT(failure_of(slot).text, HasSubstr("a batch of 2 such samples takes 0.125 MB"));
}

}  // namespace
}  // namespace stoker::detail
