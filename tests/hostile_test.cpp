// SPDX-License-Identifier: BSD-3-Clause

// Datasets and samplers that do what they should not, and loaders used as nobody would: an epoch is
// whole, or ends in an error that says why.

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "datasets.h"
#include "processes.h"
#include "supervisor/available_memory.h"
#include "support.h"

namespace stoker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Keys = std::vector<int64_t>;

// --- datasets

// Says that it has as many samples as its function tells.
struct Liar {
  std::function<size_t()> says;

  int64_t get(size_t index) const { return up_to(10).at(index); }
  size_t size() const { return says(); }
};

TEST(HostileDatasetTest, OneThatHasFewerSamplesThanItSaysIsToldByItsOwnException) {
  DataLoader loader(Liar{[] { return size_t{20}; }}, {.batch_size = 4, .num_workers = 2});
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto error = error_of(loader);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->facts().index, 10);
    EXPECT_EQ(error->facts().type_name, "std::out_of_range");
  }
}

TEST(HostileDatasetTest, OneThatShrinksGivesWhatIsLeft) {
  for (const int64_t workers : {0, 2}) {
    auto size = std::make_shared<size_t>(10);
    DataLoader loader(Liar{[size] { return *size; }}, {.batch_size = 3, .num_workers = workers});
    EXPECT_EQ(epoch_of(loader), up_to(10));
    *size = 4;
    EXPECT_EQ(epoch_of(loader), up_to(4));
    *size = 0;
    EXPECT_EQ(epoch_of(loader), Numbers{});
    *size = 10;
    EXPECT_EQ(epoch_of(loader), up_to(10));
  }
}

TEST(HostileDatasetTest, OneThatShrinksDuringAnEpochIsAskedForWhatItSaidAtTheStart) {
  auto size = std::make_shared<size_t>(10);
  DataLoader loader(Liar{[size] { return *size; }}, {.batch_size = 3, .num_workers = 2});
  auto it = loader.begin();
  *size = 1;
  Numbers all;
  for (; it != loader.end(); ++it) {
    for (const int64_t value : numbers(*it)) all.push_back(value);
  }
  EXPECT_EQ(all, up_to(10));
}

TEST(HostileDatasetTest, ASizeThatThrowsIsToldAndForgotten) {
  for (const int64_t workers : {0, 2}) {
    auto armed = std::make_shared<bool>(false);
    const Liar liar{[armed] { return *armed ? throw std::domain_error("no idea") : size_t{10}; }};
    DataLoader loader(liar, {.batch_size = 3, .num_workers = workers});
    EXPECT_EQ(epoch_of(loader), up_to(10));
    *armed = true;
    EXPECT_THROW(loader.begin(), std::domain_error);
    EXPECT_THROW(DataLoader(liar, {.num_workers = workers}), std::domain_error);
    *armed = false;
    EXPECT_EQ(epoch_of(loader), up_to(10));
  }
}

// Answers with so many samples more than it was asked for.
struct Generous {
  int64_t more;

  int64_t get(size_t index) const { return static_cast<int64_t>(index); }
  size_t size() const { return 10; }
  Numbers get_batch(std::span<const size_t> indices) const {
    return up_to(static_cast<int64_t>(indices.size()) + more);
  }
};

TEST(HostileDatasetTest, AnAnswerOfGetBatchThatIsTooLongOrEmptyIsRefused) {
  for (const int64_t more : {1, 100'000, -4}) {
    const std::string expected =
        "get_batch returned " + std::to_string(4 + more) + " samples for 4 indices";
    DataLoader loader(Generous{more}, {.batch_size = 4, .num_workers = 2});
    const auto error = error_of(loader);
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr(expected));
    DataLoader here(Generous{more}, {.batch_size = 4});
    EXPECT_THAT(text_of<std::length_error>([&] { epoch_of(here); }), HasSubstr(expected));
  }
}

TEST(HostileDatasetTest, SamplesOfNothingMakeBatchesOfNothing) {
  for (const int64_t workers : {0, 2}) {
    const auto nothing = [](size_t) { return std::pair(std::vector<int>(), std::string()); };
    DataLoader loader(Made{10, nothing}, {.batch_size = 4, .num_workers = workers});
    std::vector<size_t> sizes;
    for (const auto& [numbers, texts] : loader) {
      EXPECT_TRUE(numbers.empty());
      sizes.push_back(texts.size());
    }
    EXPECT_THAT(sizes, ElementsAre(4, 4, 2));
  }
}

// --- samplers

// Yields what its function says for call 0, 1, ..
template <class Key>
class Scripted final : public Sampler<Key> {
 public:
  using Script = std::function<std::optional<Key>(int64_t call)>;
  explicit Scripted(Script script) : script_(std::move(script)) {}

  void reset() override { calls_ = 0; }
  std::optional<Key> next() override { return script_(calls_++); }
  std::optional<int64_t> size() const override { return std::nullopt; }

 private:
  Script script_;
  int64_t calls_ = 0;
};

TEST(HostileSamplerTest, OneThatNeverEndsIsLeft) {
  for (const int64_t workers : {0, 2}) {
    const auto sampler =
        std::make_shared<Scripted<int64_t>>([](int64_t call) { return std::optional(call % 10); });
    DataLoader loader(Counting{10}, {.batch_size = 3, .sampler = sampler, .num_workers = workers});
    for (int epoch = 0; epoch < 3; ++epoch) {
      int64_t next = 0;
      for (auto& batch : loader) {
        for (const int64_t value : numbers(batch)) ASSERT_EQ(value, next++ % 10);
        if (next == 300) break;
      }
    }
  }
}

TEST(HostileSamplerTest, WhateverItThrowsComesAsItIs) {
  for (const int64_t workers : {0, 2}) {
    const auto sampler =
        std::make_shared<Scripted<int64_t>>([](int64_t call) -> std::optional<int64_t> {
          if (call == 5) throw 42;
          return call;
        });
    DataLoader loader(Counting{10}, {.sampler = sampler, .num_workers = workers});
    Numbers came;
    EXPECT_THROW(
        {
          for (auto& batch : loader) came.push_back(batch.item<int64_t>());
        },
        int);
    EXPECT_EQ(came, up_to(5));
  }
}

TEST(HostileSamplerTest, AResetThatThrowsIsToldByBegin) {
  class Broken final : public Sampler<int64_t> {
   public:
    void reset() override { throw std::domain_error("not today"); }
    std::optional<int64_t> next() override { return std::nullopt; }
    std::optional<int64_t> size() const override { return 0; }
  };
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Counting{10},
                      {.sampler = std::make_shared<Broken>(), .num_workers = workers});
    EXPECT_THROW(loader.begin(), std::domain_error);
    EXPECT_THROW(loader.begin(), std::domain_error);
  }
}

TEST(HostileSamplerTest, OneThatEndsGoesOnAndSkipsIsBelieved) {
  // Nothing is asked for after the first end, whatever would come.
  const auto sampler =
      std::make_shared<Scripted<int64_t>>([](int64_t call) -> std::optional<int64_t> {
        if (call == 3) return std::nullopt;
        return 3 * call;
      });
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Counting{100}, {.sampler = sampler, .num_workers = workers});
    EXPECT_EQ(epoch_of(loader), (Numbers{0, 3, 6}));
  }
}

TEST(HostileSamplerTest, BatchesOfOneAndOfAHundredThousandMayFollowEachOther) {
  constexpr int64_t kMany = 100'000;
  const auto sampler = std::make_shared<Scripted<Keys>>([](int64_t call) -> std::optional<Keys> {
    if (call == 6) return std::nullopt;
    return Keys(call % 2 == 0 ? 1 : static_cast<size_t>(kMany), call);
  });
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Counting{10}, {.batch_sampler = sampler, .num_workers = workers});
    int64_t call = 0;
    for (auto& batch : loader) {
      EXPECT_EQ(batch.size(0), call % 2 == 0 ? 1 : kMany);
      EXPECT_EQ(batch.min().item<int64_t>(), call);
      EXPECT_EQ(batch.max().item<int64_t>(), call);
      ++call;
    }
    EXPECT_EQ(call, 6);
  }
}

// --- sizes

TEST(HostileSizeTest, ABatchOfAHundredThousand) {
  DataLoader loader(Counting{150'000}, {.batch_size = 100'000, .num_workers = 2});
  const auto batches = batches_of(loader);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0], up_to(100'000));
  EXPECT_EQ(batches[1].size(), 50'000u);
}

TEST(HostileSizeTest, SamplesOfOneByte) {
  const auto byte = [](size_t i) { return static_cast<uint8_t>(i); };
  DataLoader loader(Made{1000, byte}, {.batch_size = 1, .num_workers = 2});
  int64_t next = 0;
  for (auto& batch : loader) {
    ASSERT_EQ(batch.nbytes(), 1u);
    ASSERT_EQ(batch.item<int64_t>(), next++ % 256);
  }
  EXPECT_EQ(next, 1000);
}

TEST(HostileSizeTest, ASampleOfThreeGigabytes) {
  constexpr int64_t kBytes = int64_t{3} << 30;
  const uint64_t available = detail::available_memory();
  if (available < uint64_t{12} << 30) {
    GTEST_SKIP() << "needs 12 GB, and " << (available >> 20) << " MB are available";
  }
  const auto huge = [](size_t i) {
    return at::full({1}, static_cast<int64_t>(i) + 1, at::kByte).expand({kBytes});
  };
  DataLoader loader(Made{1, huge}, {.num_workers = 1, .prefetch_factor = 1});
  int batches = 0;
  for (auto& batch : loader) {
    ASSERT_EQ(batch.sizes(), at::IntArrayRef({1, kBytes}));
    for (const int64_t place : {int64_t{0}, kBytes / 2, kBytes - 1}) {
      EXPECT_EQ(batch[0][place].item<int>(), 1);
    }
    ++batches;
  }
  EXPECT_EQ(batches, 1);
}

TEST(HostileSizeTest, EightThousandBatchesInFlight) {
  constexpr int64_t kMost = 8192;
  Shared<std::atomic<int64_t>> runs;
  const auto count = Made{3 * kMost, [runs](size_t index) {
                            ++*runs;
                            return static_cast<int64_t>(index);
                          }};
  DataLoader loader(count, {.num_workers = 2, .prefetch_factor = kMost / 2});
  auto it = loader.begin();
  // One has been taken, and another published for it.
  EXPECT_TRUE(eventually([&] { return *runs == kMost + 1; }, 60s)) << *runs;
  Numbers all;
  for (; it != loader.end(); ++it) all.push_back(it->item<int64_t>());
  EXPECT_EQ(all, up_to(3 * kMost));
}

// --- many loaders

TEST(HostileUseTest, TwentyLoadersAreIteratedInAnyOrder) {
  std::vector<DataLoader<Counting>> loaders;
  for (int64_t i = 0; i < 20; ++i) {
    loaders.emplace_back(Counting{50},
                         DataLoaderOptions{.batch_size = 1 + i % 4, .num_workers = i % 3});
  }
  std::vector<DataLoader<Counting>::Iterator> iterators;
  for (auto& loader : loaders) iterators.push_back(loader.begin());
  std::vector<Numbers> came(loaders.size());
  std::mt19937_64 random(test_seed());
  for (size_t left = loaders.size(); left > 0;) {
    const size_t i = random() % loaders.size();
    if (iterators[i] == loaders[i].end()) continue;
    for (const int64_t value : numbers(*iterators[i])) came[i].push_back(value);
    ++iterators[i];
    if (iterators[i] == loaders[i].end()) --left;
  }
  for (const Numbers& one : came) EXPECT_EQ(one, up_to(50));
}

TEST(HostileUseTest, AnEpochOfOneLoaderForEachBatchOfAnother) {
  DataLoader outer(Counting{20}, {.batch_size = 2, .num_workers = 2});
  DataLoader inner(Counting{9}, {.batch_size = 2, .num_workers = 1});
  int64_t batches = 0;
  for (auto& batch : outer) {
    EXPECT_EQ(numbers(batch), (Numbers{2 * batches, 2 * batches + 1}));
    EXPECT_EQ(epoch_of(inner), up_to(9));
    ++batches;
  }
  EXPECT_EQ(batches, 10);
}

// Each thread makes its own, forks included, while the others iterate.
TEST(HostileUseTest, ThreadsMakeAndUseLoadersAtTheSameTime) {
  if (kSanitized) GTEST_SKIP() << "GCC 12's allocator does not survive such forks";
  std::vector<std::thread> threads;
  std::atomic<int> whole{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        DataLoader loader(Counting{100},
                          {.batch_size = 3, .num_workers = 1 + i % 2, .persistent_workers = i < 2});
        for (int epoch = 0; epoch < 2; ++epoch) whole += epoch_of(loader) == up_to(100);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(whole, 4 * 5 * 2);
}

}  // namespace
}  // namespace stoker
