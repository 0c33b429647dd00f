// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/types.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "datasets.h"
#include "processes.h"

namespace stoker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

TEST(DataLoaderTest, EveryBatchOfAnEpochComesOnceAndInOrder) {
  for (const int64_t workers : {0, 1, 3}) {
    SCOPED_TRACE(workers);
    DataLoader loader(Counting{10}, {.batch_size = 4, .num_workers = workers});
    for (int epoch = 0; epoch < 3; ++epoch) {
      EXPECT_THAT(batches_of(loader),
                  ElementsAre(Numbers{0, 1, 2, 3}, Numbers{4, 5, 6, 7}, Numbers{8, 9}));
    }
  }
}

TEST(DataLoaderTest, ALastShortBatchIsLeftOutWithDropLast) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Counting{33}, {.batch_size = 8, .num_workers = workers, .drop_last = true});
    EXPECT_EQ(loader.size(), 4u);
    EXPECT_EQ(epoch_of(loader), up_to(32));
  }
}

TEST(DataLoaderTest, SizeIsThatOfPython) {
  EXPECT_EQ(DataLoader(Counting{100}, {.batch_size = 2}).size(), 50u);
  EXPECT_EQ(DataLoader(Counting{100}, {.batch_size = 3}).size(), 34u);
  EXPECT_EQ(DataLoader(Counting{100}, {.batch_size = 3, .drop_last = true}).size(), 33u);
  EXPECT_EQ(DataLoader(Counting{0}, {.batch_size = 3}).size(), 0u);
  EXPECT_EQ(DataLoader(Counting{2}, {.batch_size = 3, .drop_last = true}).size(), 0u);
}

TEST(DataLoaderTest, AnEmptyDatasetIsAnEmptyEpoch) {
  for (const int64_t workers : {0, 2}) {
    for (const bool shuffle : {false, true}) {
      DataLoader loader(Counting{0}, {.shuffle = shuffle, .num_workers = workers});
      EXPECT_TRUE(epoch_of(loader).empty());
      EXPECT_TRUE(epoch_of(loader).empty());
    }
  }
}

TEST(DataLoaderTest, ItsOptionsAreThoseGiven) {
  const DataLoader loader(Counting{10}, {.batch_size = 4, .num_workers = 1, .prefetch_factor = 3});
  EXPECT_EQ(loader.options().batch_size, 4);
  EXPECT_EQ(loader.options().num_workers, 1);
  EXPECT_EQ(loader.options().prefetch_factor, 3);
  EXPECT_TRUE(loader.options().persistent_workers);
  EXPECT_THROW(DataLoader(Counting{10}, {.batch_size = 0}), std::invalid_argument);
}

TEST(DataLoaderTest, DereferencingTwiceGivesTheSameBatch) {
  DataLoader loader(Counting{6}, {.batch_size = 2, .num_workers = 1});
  auto it = loader.begin();
  EXPECT_EQ(&*it, &*it);
  EXPECT_EQ(numbers(*it), (Numbers{0, 1}));
  EXPECT_EQ(it->size(0), 2);
  it++;
  EXPECT_EQ(numbers(*it), (Numbers{2, 3}));
}

TEST(DataLoaderTest, AnIteratorPastTheEndStaysThere) {
  for (const int64_t workers : {0, 1}) {
    DataLoader loader(Counting{2}, {.batch_size = 2, .num_workers = workers});
    auto it = loader.begin();
    ++it;
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(it == loader.end());
      EXPECT_THROW(*it, std::out_of_range);
      ++it;
    }
    EXPECT_EQ(epoch_of(loader), up_to(2));
  }
}

TEST(DataLoaderTest, AnIteratorOfAnEpochThatALaterOneEndedThrows) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Counting{6}, {.batch_size = 1, .num_workers = workers});
    auto old = loader.begin();
    auto current = loader.begin();
    EXPECT_EQ(numbers(*old), Numbers{0});  // what it holds stays its own
    EXPECT_THROW(++old, std::logic_error);
    { const auto gone = std::move(old); }  // ends nothing of the current epoch
    for (int64_t i = 0; i < 6; ++i, ++current) EXPECT_EQ(numbers(*current), Numbers{i});
    EXPECT_TRUE(current == loader.end());
  }
}

TEST(DataLoaderTest, AMovedIteratorGoesOn) {
  DataLoader loader(Counting{4}, {.num_workers = 1});
  std::optional<decltype(loader.begin())> first(loader.begin());
  auto second = std::move(*first);
  first.reset();
  EXPECT_EQ(numbers(*second), Numbers{0});
  ++second;
  EXPECT_EQ(numbers(*second), Numbers{1});
  second = loader.begin();  // the epoch of the one it was is over
  EXPECT_EQ(numbers(*second), Numbers{0});
}

static_assert(!std::is_copy_constructible_v<DataLoader<Counting>>);
static_assert(!std::is_copy_assignable_v<DataLoader<Counting>>);
static_assert(std::is_nothrow_move_constructible_v<DataLoader<Counting>>);

TEST(DataLoaderTest, AMovedLoaderGoesOn) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Counting{6}, {.batch_size = 2, .num_workers = workers});
    auto it = loader.begin();
    DataLoader moved = std::move(loader);
    EXPECT_EQ(numbers(*++it), (Numbers{2, 3}));
    DataLoader assigned(Counting{0});
    assigned = std::move(moved);
    EXPECT_EQ(numbers(*++it), (Numbers{4, 5}));
    EXPECT_EQ(++it, assigned.end());
    EXPECT_EQ(epoch_of(assigned), up_to(6));
  }
}

TEST(DataLoaderTest, ALoaderThatWasMovedFromSaysSo) {
  DataLoader loader(Counting{6}, {.batch_size = 2});
  const DataLoader moved = std::move(loader);
  const auto expect_told = [](auto use) {
    EXPECT_EQ(text_of<std::logic_error>(use),
              "stoker: this loader was moved from; use the one it was moved to");
  };
  expect_told([&] { loader.begin(); });
  expect_told([&] { loader.size(); });
  expect_told([&] { loader.state_dict(); });
  expect_told([&] { loader.load_state_dict({}); });
  expect_told([&] { loader.dataset(); });
  expect_told([&] { loader.options(); });
  expect_told([&] { loader.stats(); });
}

TEST(DataLoaderTest, AnIteratorThatOutlivesItsLoaderThrowsWhenItIsUsed) {
  std::optional<DataLoader<Counting>> loader(std::in_place, Counting{4},
                                             DataLoaderOptions{.num_workers = 2});
  auto it = loader->begin();
  loader.reset();
  EXPECT_EQ(numbers(*it), Numbers{0});
  EXPECT_THROW(++it, std::logic_error);
}

TEST(DataLoaderTest, ADatasetMayBeMoveOnly) {
  struct Owner {
    std::unique_ptr<Numbers> values;
    int64_t get(size_t index) { return values->at(index); }
    size_t size() const { return values->size(); }
  };
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Owner{std::make_unique<Numbers>(up_to(9))},
                      {.batch_size = 2, .num_workers = workers});
    EXPECT_EQ(epoch_of(loader), up_to(9));
    EXPECT_EQ(loader.dataset().size(), 9u);
  }
}

TEST(DataLoaderTest, BatchesMayBeKeptAndChanged) {
  for (const int64_t workers : {0, 2}) {
    SCOPED_TRACE(workers);
    const auto filled = Made{60, [](size_t index) { return at::full({100}, int64_t(index)); }};
    DataLoader loader(filled, {.batch_size = 2, .num_workers = workers});
    std::vector<at::Tensor> kept;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (auto& batch : loader) {
        batch.add_(1000);  // it is the program's own
        kept.push_back(std::move(batch));
      }
    }
    ASSERT_EQ(kept.size(), 60u);
    for (size_t i = 0; i < kept.size(); ++i) {
      const int64_t first = 1000 + 2 * static_cast<int64_t>(i % 30);
      EXPECT_TRUE(kept[i][0].eq(first).all().item<bool>()) << i;
      EXPECT_TRUE(kept[i][1].eq(first + 1).all().item<bool>()) << i;
    }
  }
}

TEST(DataLoaderTest, BatchesOutliveTheLoader) {
  for (const int64_t workers : {0, 2}) {
    std::vector<at::Tensor> kept;
    {
      DataLoader loader(Counting{100}, {.batch_size = 10, .num_workers = workers});
      for (auto& batch : loader) kept.push_back(batch);
    }
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(kept[i].sum().item<int64_t>(), 100 * static_cast<int64_t>(i) + 45);
    }
    std::thread([&] { kept.clear(); }).join();  // the memory ends on whichever thread
  }
}

// Notes in the memory of all processes how its batches were asked for.
struct Whole {
  Shared<std::atomic<int>> calls;
  Shared<std::atomic<int>> gets;

  int64_t get(size_t index) {
    ++*gets;
    return static_cast<int64_t>(index);
  }
  std::vector<int64_t> get_batch(std::span<const size_t> indices) {
    ++*calls;
    return {indices.begin(), indices.end()};
  }
  size_t size() const { return 10; }
};

TEST(DataLoaderTest, ADatasetThatFetchesBatchesIsAskedOncePerBatch) {
  for (const int64_t workers : {0, 2}) {
    Whole dataset;
    DataLoader loader(dataset, {.batch_size = 4, .num_workers = workers});
    EXPECT_THAT(batches_of(loader),
                ElementsAre(Numbers{0, 1, 2, 3}, Numbers{4, 5, 6, 7}, Numbers{8, 9}));
    EXPECT_EQ(*dataset.calls, 3);
    EXPECT_EQ(*dataset.gets, 0);
  }
}

TEST(DataLoaderTest, WithoutOrderEachBatchComesOnce) {
  const auto uneven = Made{40, [](size_t index) {
                             if (index % 7 == 0) std::this_thread::sleep_for(5ms);
                             return static_cast<int64_t>(index);
                           }};
  for (const int64_t workers : {0, 1, 3}) {
    DataLoader loader(uneven, {.num_workers = workers, .in_order = false});
    for (int epoch = 0; epoch < 2; ++epoch) {
      EXPECT_THAT(epoch_of(loader), UnorderedElementsAreArray(up_to(40)));
    }
  }
}

TEST(DataLoaderTest, WithoutOrderASlowBatchHoldsNobodyUp) {
  Shared<std::atomic<bool>> rest_came;
  const auto first_waits = Made{6, [=](size_t index) {
                                  if (index == 0) sleep_until([&] { return rest_came->load(); });
                                  return static_cast<int64_t>(index);
                                }};
  DataLoader loader(first_waits, {.num_workers = 2, .in_order = false});
  Numbers came;
  for (auto& batch : loader) {
    came.push_back(batch.item<int64_t>());
    *rest_came = came.size() == 5;
  }
  EXPECT_THAT(came, UnorderedElementsAreArray(up_to(6)));
  EXPECT_EQ(came.back(), 0);
}

TEST(DataLoaderTest, TwoLoadersInterleave) {
  DataLoader one(Counting{20}, {.batch_size = 3, .num_workers = 2});
  DataLoader other(Counting{20}, {.batch_size = 3, .num_workers = 1});
  auto it = other.begin();
  for (auto& batch : one) {
    EXPECT_EQ(numbers(batch), numbers(*it));
    ++it;
  }
  EXPECT_TRUE(it == other.end());
}

TEST(DataLoaderTest, ALoaderMayLiveInAnotherThread) {
  Numbers one, other;
  const auto run = [](Numbers& seen) {
    DataLoader loader(Counting{50}, {.batch_size = 4, .num_workers = 2});
    for (int epoch = 0; epoch < 2; ++epoch) seen = epoch_of(loader);
  };
  std::thread first(run, std::ref(one));
  std::thread second(run, std::ref(other));
  first.join();
  second.join();
  EXPECT_EQ(one, up_to(50));
  EXPECT_EQ(other, up_to(50));
}

TEST(DataLoaderTest, ALoaderMayBeHandedToAnotherThread) {
  DataLoader loader(Counting{50}, {.batch_size = 4, .num_workers = 2});
  Numbers seen;
  std::thread([&] { seen = epoch_of(loader); }).join();
  EXPECT_EQ(seen, up_to(50));
  EXPECT_EQ(epoch_of(loader), up_to(50));
}

TEST(DataLoaderTest, AWorkerMayHaveALoaderOfItsOwn) {
  const auto nested =
      Made{6, [](size_t index) {
             DataLoader inner(Counting{index + 1}, {.batch_size = 2, .num_workers = 1});
             int64_t sum = 0;
             for (const int64_t value : epoch_of(inner)) sum += value;
             return sum;
           }};
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(nested, {.batch_size = 2, .num_workers = workers});
    EXPECT_EQ(epoch_of(loader), (Numbers{0, 1, 3, 6, 10, 15}));
  }
}

TEST(DataLoaderTest, WorkersOfTheNextEpochSeeAChangedDatasetIfTheyDoNotPersist) {
  struct Growing {
    Numbers values;
    int64_t get(size_t index) const { return values.at(index); }
    size_t size() const { return values.size(); }
  };
  DataLoader loader(Growing{{1, 2}}, {.num_workers = 2, .persistent_workers = false});
  EXPECT_EQ(epoch_of(loader), (Numbers{1, 2}));
  loader.dataset().values = {3, 4, 5};
  EXPECT_EQ(loader.size(), 3u);
  EXPECT_EQ(epoch_of(loader), (Numbers{3, 4, 5}));
}

TEST(DataLoaderTest, AForkedCopyCannotBeIteratedOver) {
  DataLoader loader(Counting{4}, {.num_workers = 1});
  EXPECT_THAT(in_child([&] { epoch_of(loader); }), HasSubstr("in the process that made it"));
  EXPECT_EQ(epoch_of(loader), up_to(4));
}

}  // namespace
}  // namespace stoker
