// SPDX-License-Identifier: BSD-3-Clause
// Of fill.cpp: batches fetched as a whole, and the randomness of what is fetched.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

#include "datasets.h"
#include "slot_memory.h"
#include "worker/fill.h"

namespace stoker::detail {
namespace {

using testing::ElementsAre;

// A dataset made of a function of a batch's indices.
template <class Make>
struct MadeWhole {
  Make make;

  int64_t get(size_t) const { throw std::logic_error("get, where get_batch would do"); }
  std::vector<int64_t> get_batch(std::span<const size_t> indices) { return make(indices); }
  size_t size() const { return 1000; }
};

template <class Make>
auto whole_fetcher_of(Make make) {
  return MapFetcher(MadeWhole<Make>{std::move(make)});
}

TEST(FillWholeTest, FetchesTheBatchInOneCall) {
  int calls = 0;
  auto fetcher = whole_fetcher_of([&](std::span<const size_t> indices) {
    ++calls;
    Numbers samples;
    for (const size_t index : indices) samples.push_back(static_cast<int64_t>(index) * 3);
    return samples;
  });
  HeapSlot memory;
  const Slot slot = memory.publish({5, 3, 4});
  ASSERT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kReady);
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(column<int64_t>(slot, 0), ElementsAre(15, 9, 12));
}

TEST(FillWholeTest, AnAnswerOfAnotherLengthIsAnError) {
  auto fetcher = whole_fetcher_of([](std::span<const size_t>) { return Numbers{1, 2}; });
  HeapSlot memory;
  for (const std::vector<int64_t>& indices : {Numbers{1, 2, 3}, Numbers{1}}) {
    const Slot slot = memory.publish(indices);
    ASSERT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kFailed);
    EXPECT_EQ(failure_of(slot).text, "stoker: get_batch returned 2 samples for " +
                                         std::to_string(indices.size()) + " indices");
    EXPECT_FALSE(failure_of(slot).index);
  }
}

TEST(FillWholeTest, AnExceptionIsAboutTheBatch) {
  auto fetcher = whole_fetcher_of(
      [](std::span<const size_t>) -> Numbers { throw std::runtime_error("the disk is gone"); });
  HeapSlot memory;
  const Slot slot = memory.publish({1, 2, 3});
  EXPECT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kFailed);
  EXPECT_EQ(failure_of(slot).text, "the disk is gone");
  EXPECT_EQ(failure_of(slot).type_name, "std::runtime_error");
  EXPECT_FALSE(failure_of(slot).index);
}

TEST(FillWholeTest, ACancelledBatchIsNotFetched) {
  bool fetched = false;
  auto fetcher = whole_fetcher_of([&](std::span<const size_t> indices) {
    fetched = true;
    return Numbers(indices.size());
  });
  HeapSlot memory;
  const Slot slot = memory.publish({1, 2});
  slot.header().cancelled = 1;
  EXPECT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kReady);
  EXPECT_FALSE(fetched);
}

// Numbers that a dataset drew; `first` is the position of the batch in its epoch.
Numbers filled(HandWorker& worker, HeapSlot& memory, const Numbers& indices, uint64_t first) {
  const Slot slot = memory.publish(indices, 5, first);
  {
    const Filler::OwnRandomness own(worker.filler());
    worker.work(slot, {0, static_cast<uint32_t>(indices.size())});
  }
  EXPECT_EQ(worker.filler().complete(slot), SlotStatus::kReady);
  return column<int64_t>(slot, 0);
}

int64_t draw() { return at::randint(1 << 30, {1}).item<int64_t>() * 1000 + rand() % 1000; }

TEST(FillRandomTest, ASampleDependsOnItsPositionAlone) {
  MapFetcher fetcher(Made(1000, [](size_t) { return draw(); }));
  HeapSlot memory;
  HandWorker one(fetcher), other(fetcher);
  const Numbers all = filled(one, memory, Numbers(4), 0);
  EXPECT_NE(all[0], all[1]);
  EXPECT_EQ(filled(other, memory, Numbers(1), 3)[0], all[3]);
  EXPECT_EQ(filled(other, memory, Numbers(2), 1), Numbers({all[1], all[2]}));
}

TEST(FillRandomTest, ABatchFetchedAsAWholeDependsOnItsPositionAlone) {
  auto fetcher = whole_fetcher_of([](std::span<const size_t> indices) {
    Numbers samples;
    for (size_t i = 0; i < indices.size(); ++i) samples.push_back(draw());
    return samples;
  });
  HeapSlot memory;
  HandWorker one(fetcher), other(fetcher);
  const Numbers first = filled(one, memory, Numbers(3), 0);
  const Numbers second = filled(one, memory, Numbers(3), 3);
  EXPECT_NE(first, second);
  EXPECT_EQ(filled(other, memory, Numbers(3), 3), second);
  EXPECT_EQ(filled(other, memory, Numbers(3), 0), first);
}

// After two deaths its samples are fetched one by one, to find the one to blame; there is none.
TEST(FillRandomTest, ABatchThatIsSearchedForADeadlySampleHasTheBytesOfOneThatIsNot) {
  auto fetcher = whole_fetcher_of([](std::span<const size_t> indices) {
    Numbers samples;
    for (size_t i = 0; i < indices.size(); ++i) samples.push_back(draw());
    return samples;
  });
  HeapSlot memory;
  HandWorker one(fetcher);
  const Numbers undisturbed = filled(one, memory, Numbers(3), 0);
  const Slot slot = memory.publish(Numbers(3), 5, 0);
  slot.header().one_by_one = 1;
  {
    const Filler::OwnRandomness own(one.filler());
    one.work(slot, {0, 3});
  }
  EXPECT_EQ(one.filler().complete(slot), SlotStatus::kReady);
  EXPECT_EQ(column<int64_t>(slot, 0), undisturbed);
}

// Draws at index 7 only, long after the loader has learned that it draws nothing.
TEST(FillRandomTest, ALateFirstDrawIsSeededToo) {
  int runs = 0;
  MapFetcher fetcher(Made(1000, [&](size_t i) {
    ++runs;
    return i == 7 ? draw() : 0;
  }));
  HeapSlot memory;
  HandWorker quiet(fetcher), other(fetcher);
  for (int i = 0; i < 10; ++i) filled(quiet, memory, Numbers(8), 0);
  EXPECT_EQ(runs, 80);
  const Numbers late = filled(quiet, memory, {1, 7, 2}, 50);
  EXPECT_EQ(runs, 86);  // fetched again
  EXPECT_EQ(late, filled(other, memory, {1, 7, 2}, 50));
  EXPECT_NE(late[1], 0);
  filled(quiet, memory, {7, 7}, 60);
  EXPECT_EQ(runs, 86 + 3 + 2);  // and never twice again
}

TEST(FillRandomTest, StringsOfSamplesFetchedAgainAreRight) {
  MapFetcher fetcher(Made(1000, [](size_t i) { return i < 7 ? "quiet" : std::to_string(draw()); }));
  HeapSlot memory;
  HandWorker quiet(fetcher), other(fetcher);
  for (int i = 0; i < 10; ++i) filled(quiet, memory, Numbers(8), 0);
  filled(quiet, memory, {7, 8}, 20);
  const auto late = strings(memory.slot(), 0);
  filled(other, memory, {7, 8}, 20);
  EXPECT_EQ(strings(memory.slot(), 0), late);
}

TEST(FillRandomTest, AnErrorOfARunThatIsRepeatedIsForgotten) {
  bool bad = true;
  MapFetcher fetcher(Made(1000, [&](size_t i) -> int64_t {
    if (i != 7) return 0;
    const int64_t drawn = draw();
    // As if the unseeded numbers had been unlucky ones.
    if (std::exchange(bad, false)) throw std::runtime_error("drawn unseeded");
    return drawn;
  }));
  HeapSlot memory;
  HandWorker quiet(fetcher, std::nullopt);
  for (int i = 0; i < 10; ++i) filled(quiet, memory, Numbers(8), 0);
  EXPECT_NE(filled(quiet, memory, {1, 7, 2}, 50)[1], 0);
  EXPECT_FALSE(bad);
  EXPECT_EQ(quiet.filler().take_error(), nullptr);
}

TEST(FillRandomTest, TheProgramsGeneratorsAreLeftAsTheyWere) {
  MapFetcher fetcher(Made(1000, [](size_t) { return draw(); }));
  HeapSlot memory;
  HandWorker worker(fetcher);
  at::manual_seed(3);
  srand(3);
  const Numbers undisturbed = {draw(), draw(), draw()};
  at::manual_seed(3);
  srand(3);
  for (const int64_t expected : undisturbed) {
    EXPECT_EQ(draw(), expected);
    filled(worker, memory, Numbers(40), 0);
  }
}

// Writes the numbers of its samples itself.
struct Gathering {
  int* gathered;
  bool able = true;

  at::Tensor get(size_t index) const {
    return at::scalar_tensor(static_cast<int64_t>(index), at::kLong);
  }
  std::vector<at::Tensor> get_batch(std::span<const size_t> indices) const {
    std::vector<at::Tensor> all;
    for (const size_t index : indices) all.push_back(get(index));
    return all;
  }
  bool gather(std::span<const size_t> indices, std::span<std::byte* const> columns) const {
    EXPECT_EQ(columns.size(), 1u);
    if (!able) return false;
    ++*gathered;
    std::memcpy(columns[0], indices.data(), indices.size() * sizeof(size_t));
    return true;
  }
  size_t size() const { return 1000; }
};

TEST(FillWholeTest, ADatasetThatCanWritesTheRowsItself) {
  for (const bool able : {true, false}) {
    int gathered = 0;
    MapFetcher fetcher(Gathering{&gathered, able});
    HeapSlot memory;
    const Slot slot = memory.publish({5, 3, 4});
    ASSERT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kReady);
    EXPECT_THAT(column<int64_t>(slot, 0), ElementsAre(5, 3, 4));
    EXPECT_EQ(gathered, able ? 1 : 0);
  }
}

TEST(FillWholeTest, RowsThatDoNotFollowEachOtherAreWrittenOneByOne) {
  int gathered = 0;
  MapFetcher fetcher(Gathering{&gathered});
  HeapSlot memory;
  const Slot slot = memory.publish({5, 3, 4});
  // Another worker has the one in between.
  HandWorker(fetcher, 1).work(slot, {1, 1});
  ASSERT_EQ(gathered, 1);
  EXPECT_TRUE(HandWorker(fetcher, 0).work(slot, {0, 3}));
  ASSERT_EQ(collate(slot, fetcher, 0), SlotStatus::kReady);
  EXPECT_THAT(column<int64_t>(slot, 0), ElementsAre(5, 3, 4));
  EXPECT_EQ(gathered, 1);
}

}  // namespace
}  // namespace stoker::detail
