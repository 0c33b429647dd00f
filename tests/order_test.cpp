// SPDX-License-Identifier: BSD-3-Clause

// The order of the samples is that of Python's DataLoader (2.13) with the same seed, and the
// program's own generators are left as Python leaves them.

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/types.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "datasets.h"

namespace stoker {
namespace {

// Seen with list(DataLoader(range(10), shuffle=True)) after torch.manual_seed(0), and with
// generator=torch.Generator().manual_seed(42); the workers not persistent, any number of them.
const std::vector<Numbers> kManualSeed0 = {
    {6, 7, 1, 4, 2, 0, 9, 8, 3, 5}, {2, 4, 7, 0, 8, 9, 5, 3, 6, 1}, {7, 4, 5, 1, 9, 3, 8, 2, 0, 6}};
const std::vector<Numbers> kGenerator42 = {
    {6, 5, 4, 0, 8, 9, 2, 1, 3, 7}, {3, 6, 5, 8, 9, 4, 2, 0, 7, 1}, {7, 4, 5, 0, 9, 1, 3, 2, 8, 6}};

// For every number of workers, persistent or not.
void for_all_workers(const std::function<void(DataLoaderOptions)>& check) {
  for (const int64_t workers : {0, 2, 3}) {
    for (const bool persistent : {true, false}) {
      SCOPED_TRACE(std::to_string(workers) + (persistent ? " persistent" : "") + " workers");
      check({.shuffle = true, .num_workers = workers, .persistent_workers = persistent});
    }
  }
}

void expect_epochs(const DataLoaderOptions& options, const std::vector<Numbers>& expected) {
  DataLoader loader(Counting{10}, options);
  for (const Numbers& epoch : expected) EXPECT_EQ(epoch_of(loader), epoch);
}

at::Tensor state_of_torch() { return at::detail::getDefaultCPUGenerator().get_state(); }

void draw_a_seed() { at::empty({}, at::kLong).random_(); }

TEST(OrderTest, WithTorchsDefaultGeneratorItIsPythons) {
  for_all_workers([](const DataLoaderOptions& options) {
    at::manual_seed(0);
    expect_epochs(options, kManualSeed0);
  });
}

TEST(OrderTest, TheBatchSizeDoesNotChangeIt) {
  at::manual_seed(0);
  expect_epochs({.batch_size = 3, .shuffle = true, .num_workers = 2}, kManualSeed0);
}

TEST(OrderTest, WithAGeneratorItIsPythons) {
  for_all_workers([](DataLoaderOptions options) {
    options.generator = at::make_generator<at::CPUGeneratorImpl>(42);
    expect_epochs(options, kGenerator42);
  });
}

TEST(OrderTest, WithASeedItIsThatOfAGeneratorOfThisSeed) {
  for_all_workers([](DataLoaderOptions options) {
    options.seed = 42;
    expect_epochs(options, kGenerator42);
  });
}

TEST(OrderTest, AnEpochLeftEarlyDrawsLikeAWholeOne) {
  for_all_workers([](const DataLoaderOptions& options) {
    at::manual_seed(0);
    DataLoader loader(Counting{10}, options);
    for (const Numbers& epoch : kManualSeed0) {
      EXPECT_EQ(numbers(*loader.begin()), Numbers{epoch.front()});
    }
  });
}

TEST(OrderTest, AShuffledEpochDrawsTwoSeedsOfTheProgramsGenerator) {
  at::manual_seed(5);
  for (int i = 0; i < 2 * 3; ++i) draw_a_seed();
  const at::Tensor expected = state_of_torch();
  for_all_workers([&](const DataLoaderOptions& options) {
    at::manual_seed(5);
    DataLoader loader(Made{10, [](size_t) { return at::rand({3}); }}, options);
    for (int epoch = 0; epoch < 3; ++epoch) {
      for ([[maybe_unused]] auto& batch : loader) {
      }
    }
    EXPECT_TRUE(state_of_torch().equal(expected));
  });
}

TEST(OrderTest, AnUnshuffledEpochDrawsOneSeed) {
  at::manual_seed(5);
  draw_a_seed();
  const at::Tensor expected = state_of_torch();
  for_all_workers([&](DataLoaderOptions options) {
    options.shuffle = false;
    at::manual_seed(5);
    DataLoader loader(Counting{10}, options);
    EXPECT_EQ(epoch_of(loader), up_to(10));
    EXPECT_TRUE(state_of_torch().equal(expected));
  });
}

TEST(OrderTest, ALoaderWithItsOwnGeneratorLeavesTheProgramsAlone) {
  at::manual_seed(5);
  const at::Tensor expected = state_of_torch();
  for_all_workers([&](DataLoaderOptions options) {
    options.seed = 42;
    DataLoader loader(Made{10, [](size_t) { return at::randn({3}); }}, options);
    EXPECT_NE(loader.begin(), loader.end());
    EXPECT_TRUE(state_of_torch().equal(expected));
  });
}

// A normal variate that was drawn in a pair is kept for the next call; it must survive too.
TEST(OrderTest, ADrawOfTheProgramsBetweenBatchesIsUndisturbed) {
  const auto draws = [] { return at::randn({1}, at::kDouble).item<double>(); };
  at::manual_seed(9);
  std::vector<double> expected;
  for (int i = 0; i < 5; ++i) expected.push_back(draws());
  for_all_workers([&](DataLoaderOptions options) {
    options.seed = 42;
    DataLoader loader(Made{5, [&](size_t) { return draws(); }}, options);
    at::manual_seed(9);
    std::vector<double> seen;
    for ([[maybe_unused]] auto& batch : loader) seen.push_back(draws());
    EXPECT_EQ(seen, expected);
  });
}

TEST(OrderTest, TheProgramsRandIsUndisturbed) {
  std::vector<int> expected;
  std::srand(7);
  for (int i = 0; i < 5; ++i) expected.push_back(std::rand());
  for_all_workers([&](const DataLoaderOptions& options) {
    DataLoader loader(Made{5, [](size_t) { return int64_t{std::rand()}; }}, options);
    std::srand(7);
    std::vector<int> seen;
    for ([[maybe_unused]] auto& batch : loader) seen.push_back(std::rand());
    EXPECT_EQ(seen, expected);
  });
}

// Prefetching may have reached the end of the sampler by then, or not.
TEST(OrderTest, AnEpochLeftEarlyWithAGeneratorDrawsLikeAWholeOne) {
  for (const int64_t workers : {0, 2, 8}) {
    DataLoader loader(Counting{10}, {.shuffle = true, .num_workers = workers, .seed = 42});
    for (const Numbers& epoch : kGenerator42) {
      EXPECT_EQ(numbers(*loader.begin()), Numbers{epoch.front()}) << workers << " workers";
    }
  }
}

}  // namespace
}  // namespace stoker
