// SPDX-License-Identifier: BSD-3-Clause

// What the core does with epochs, batches in flight, samplers and its figures.

#include <ATen/DeviceAccelerator.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "datasets.h"
#include "processes.h"

namespace stoker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Keys = std::vector<int64_t>;

// Yields what its function says for call 0, 1, ..; no size.
template <class Key>
class Scripted final : public Sampler<Key> {
 public:
  using Script = std::function<std::optional<Key>(int call)>;
  explicit Scripted(Script script) : script_(std::move(script)) {}

  void reset() override { calls_ = 0; }
  std::optional<Key> next() override { return script_(calls_++); }
  std::optional<int64_t> size() const override { return std::nullopt; }
  int calls() const { return calls_; }

 private:
  Script script_;
  int calls_ = 0;
};

template <class Key>
auto scripted(std::vector<Key> keys) {
  return std::make_shared<Scripted<Key>>([=](int call) -> std::optional<Key> {
    if (call >= static_cast<int>(keys.size())) return std::nullopt;
    return keys[static_cast<size_t>(call)];
  });
}

TEST(CoreTest, ASamplerSaysTheOrder) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(
        Counting{10},
        {.batch_size = 2, .sampler = scripted<int64_t>({9, 3, 3, 0, 7}), .num_workers = workers});
    EXPECT_THAT(batches_of(loader), ElementsAre(Numbers{9, 3}, Numbers{3, 0}, Numbers{7}));
    EXPECT_EQ(epoch_of(loader).size(), 5u);
    EXPECT_THROW((void)loader.size(), std::logic_error);
  }
}

TEST(CoreTest, ABatchSamplerSaysTheBatches) {
  const std::vector<Keys> batches = {{1, 2}, {5}, {9, 8, 7, 6, 5, 4, 3}, {0, 0, 0}};
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Counting{10}, {.batch_sampler = scripted(batches), .num_workers = workers});
    EXPECT_EQ(batches_of(loader), batches);
    EXPECT_EQ(batches_of(loader), batches);
  }
}

// The batches before the sampler's mistake come first; then the error stays, until the next epoch.
template <class Error>
void expect_sampler_error(const DataLoaderOptions& options, const std::string& text) {
  DataLoader loader(Counting{10}, options);
  for (int epoch = 0; epoch < 2; ++epoch) {
    auto it = loader.begin();
    EXPECT_EQ(numbers(*it), Numbers{4});
    ++it;
    EXPECT_EQ(numbers(*it), Numbers{5});
    for (int i = 0; i < 2; ++i) {
      try {
        ++it;
        FAIL() << "no error";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(text));
      }
    }
    EXPECT_TRUE(it == loader.end());
  }
}

TEST(CoreTest, WhatASamplerThrowsComesThroughInItsTurn) {
  for (const int64_t workers : {0, 2}) {
    const auto sampler =
        std::make_shared<Scripted<int64_t>>([](int call) -> std::optional<int64_t> {
          if (call == 2) throw std::domain_error("no more keys");
          return 4 + call;
        });
    expect_sampler_error<std::domain_error>({.sampler = sampler, .num_workers = workers},
                                            "no more keys");
  }
}

TEST(CoreTest, AnIndexOutOfRangeIsNamed) {
  for (const int64_t workers : {0, 2}) {
    expect_sampler_error<std::out_of_range>(
        {.sampler = scripted<int64_t>({4, 5, 10}), .num_workers = workers},
        "index 10 for a dataset of 10 samples");
    expect_sampler_error<std::out_of_range>(
        {.sampler = scripted<int64_t>({4, 5, -1}), .num_workers = workers}, "index -1");
  }
}

TEST(CoreTest, ABatchWithoutIndicesIsRefused) {
  for (const int64_t workers : {0, 2}) {
    expect_sampler_error<std::invalid_argument>(
        {.batch_sampler = scripted<Keys>({{4}, {5}, {}, {6}}), .num_workers = workers},
        "a batch without indices");
  }
}

TEST(CoreTest, NoMoreBatchesAreDrawnAheadThanAreInFlight) {
  for (const int64_t prefetch : {1, 3}) {
    const auto sampler = std::make_shared<Scripted<Keys>>(
        [](int call) { return call < 40 ? std::optional(Keys{call % 10}) : std::nullopt; });
    DataLoader loader(Counting{10},
                      {.batch_sampler = sampler, .num_workers = 2, .prefetch_factor = prefetch});
    int taken = 0;
    for ([[maybe_unused]] auto& batch : loader) {
      ++taken;
      // Of the end it is asked once.
      EXPECT_EQ(sampler->calls(), std::min(taken + 2 * static_cast<int>(prefetch), 40 + 1));
    }
    EXPECT_EQ(taken, 40);
  }
}

TEST(CoreTest, WithoutWorkersNothingIsDrawnAhead) {
  const auto sampler = std::make_shared<Scripted<int64_t>>(
      [](int call) { return call < 10 ? std::optional<int64_t>(call) : std::nullopt; });
  DataLoader loader(Counting{10}, {.sampler = sampler});
  int taken = 0;
  for ([[maybe_unused]] auto& batch : loader) EXPECT_EQ(sampler->calls(), ++taken);
}

TEST(CoreTest, SamplesOfAnEpochThatWasLeftAreNotRun) {
  constexpr int kWorkers = 2;
  Shared<std::atomic<int>> runs;
  Shared<std::atomic<bool>> gate;
  // From sample 10 on each waits, so that it is known how far the workers are when main leaves.
  const auto dataset = Made{200, [=](size_t index) {
                              ++*runs;
                              if (index >= 10) sleep_until([&] { return gate->load(); });
                              return static_cast<int64_t>(index);
                            }};
  DataLoader loader(dataset, {.batch_size = 10, .num_workers = kWorkers, .prefetch_factor = 8});
  EXPECT_EQ(numbers(*loader.begin()), up_to(10));
  *gate = true;
  EXPECT_EQ(epoch_of(loader), up_to(200));
  EXPECT_GE(*runs, 200 + 10);
  EXPECT_LE(*runs, 200 + 10 + kWorkers);  // those that were being run
}

TEST(CoreTest, LeavingManyEpochsEarlyLeavesTheRestRight) {
  DataLoader loader(Counting{100}, {.batch_size = 3, .num_workers = 2, .prefetch_factor = 4});
  for (int epoch = 0; epoch < 50; ++epoch) {
    auto it = loader.begin();
    for (int64_t i = 0; i < epoch % 5; ++i) ++it;
    EXPECT_EQ(it->min().item<int64_t>(), 3 * (epoch % 5));
  }
  EXPECT_EQ(epoch_of(loader), up_to(100));
}

TEST(CoreTest, StatsCountBatchesAndSamples) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Counting{10}, {.batch_size = 4, .num_workers = workers});
    EXPECT_EQ(loader.stats().epochs, 0);
    EXPECT_EQ(loader.stats().total.wait_share(), 0);
    epoch_of(loader);
    loader.begin();  // one batch more
    const LoaderStats& stats = loader.stats();
    EXPECT_EQ(stats.epochs, 2);
    EXPECT_EQ(stats.epoch.batches, 1);
    EXPECT_EQ(stats.epoch.samples, 4);
    EXPECT_EQ(stats.total.batches, 4);
    EXPECT_EQ(stats.total.samples, 14);
  }
}

TEST(CoreTest, StatsTellWhoWaitedForWhom) {
  const auto slow = Made{4, [](size_t index) {
                           std::this_thread::sleep_for(20ms);
                           return static_cast<int64_t>(index);
                         }};
  for (const int64_t workers : {0, 1}) {
    DataLoader loader(slow, {.num_workers = workers});
    epoch_of(loader);
    const LoaderStats& stats = loader.stats();
    EXPECT_GE(stats.total.waited, 4 * 20ms);
    EXPECT_GE(stats.first_batch, 20ms);
    EXPECT_EQ(stats.epoch.waited, stats.total.waited);
    EXPECT_GT(stats.total.wait_share(), 0.5);
  }
  DataLoader quick(Counting{4}, {.num_workers = 1});
  for ([[maybe_unused]] auto& batch : quick) std::this_thread::sleep_for(20ms);
  EXPECT_GE(quick.stats().total.computed, 4 * 20ms);
}

TEST(CoreTest, TheTimeBetweenEpochsIsNobodys) {
  DataLoader loader(Counting{2}, {.num_workers = 1});
  epoch_of(loader);
  const auto computed = loader.stats().total.computed;
  std::this_thread::sleep_for(50ms);
  const auto it = loader.begin();
  EXPECT_EQ(loader.stats().epoch.computed.count(), 0);
  EXPECT_EQ(loader.stats().total.computed, computed);
}

// Keeps the warnings of a test instead of printing them.
class Caught final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;
};

TEST(CoreTest, PinningWithoutAnAcceleratorWarnsOnceAndGoesOn) {
  if (at::getAccelerator(false)) GTEST_SKIP() << "there is an accelerator here";
  static Caught caught;  // once per process: over all repetitions of this test
  const c10::WarningUtils::WarningHandlerGuard guard(&caught);
  for (const int64_t workers : {0, 1}) {
    DataLoader loader(Counting{4}, {.num_workers = workers, .pin_memory = true});
    EXPECT_EQ(epoch_of(loader), up_to(4));
  }
  ASSERT_THAT(caught.texts, ElementsAre(HasSubstr("pin_memory")));
}

}  // namespace
}  // namespace stoker
