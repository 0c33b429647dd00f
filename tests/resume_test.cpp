// SPDX-License-Identifier: BSD-3-Clause

// A run that is saved, ended and resumed has the bytes of one that was not, whatever changes.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "datasets.h"
#include "digest.h"

namespace stoker {
namespace {

constexpr int64_t kBatches = 7;

// Batches by their digests.
using Digests = std::vector<uint64_t>;

Digests operator+(Digests a, const Digests& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Noisy {
  std::tuple<at::Tensor, int64_t> get(size_t index) const {
    return {at::rand({4}) + static_cast<int64_t>(index), int64_t{std::rand()}};
  }
  size_t size() const { return 5 * kBatches - 2; }
};

DataLoader<Noisy> make(DataLoaderOptions options) {
  options.batch_size = 5;
  options.shuffle = true;
  return DataLoader(Noisy{}, std::move(options));
}

template <class Loader>
Digests deliver(Loader& loader, int64_t batches = 1000) {
  Digests run;
  auto batch = loader.begin();
  for (; batch != loader.end(); ++batch) {
    Digest digest;
    digest.add(std::get<0>(*batch));
    digest.add(std::get<1>(*batch));
    run.push_back(digest.value());
    if (static_cast<int64_t>(run.size()) == batches) break;
  }
  return run;
}

class ResumeTest : public testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t>> {};

// Saved after so many batches of the second epoch with one number of workers, and after two more
// with another; the rest, and two more epochs, with a third.
TEST_P(ResumeTest, TheRestIsThatOfTheRunThatWasNotEnded) {
  const auto [before, between, after] = GetParam();
  at::manual_seed(11);
  auto undisturbed = make({});
  deliver(undisturbed);
  const Digests second = deliver(undisturbed);
  const Digests third = deliver(undisturbed);
  const Digests fourth = deliver(undisturbed);
  ASSERT_EQ(second.size(), static_cast<size_t>(kBatches));

  for (int64_t batches = 1; batches < kBatches - 2; ++batches) {
    at::manual_seed(11);
    auto first_loader = make({.num_workers = before});
    deliver(first_loader);
    Digests run = deliver(first_loader, batches);
    const StateDict saved = first_loader.state_dict();

    at::manual_seed(99);
    auto second_loader = make({.num_workers = between, .persistent_workers = false});
    second_loader.load_state_dict(saved);
    run = run + deliver(second_loader, 2);
    const std::string again = second_loader.state_dict().to_json();

    at::manual_seed(98);
    auto third_loader = make({.num_workers = after});
    third_loader.load_state_dict(StateDict::from_json(again));
    EXPECT_EQ(run + deliver(third_loader), second) << batches;
    EXPECT_EQ(deliver(third_loader), third) << batches;
    EXPECT_EQ(deliver(third_loader), fourth) << batches;
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, ResumeTest,
                         testing::Values(std::tuple(0, 0, 0), std::tuple(1, 3, 0),
                                         std::tuple(3, 1, 3), std::tuple(0, 3, 1)));

// After torchdata's issue 1437.
TEST(ResumeAtTheEndTest, TheEpochsAfterTheSavedOneFollow) {
  for (const bool behind_the_loop : {false, true}) {
    at::manual_seed(11);
    auto loader = make({.num_workers = 2});
    deliver(loader);
    deliver(loader, behind_the_loop ? 1000 : kBatches);
    const StateDict state = loader.state_dict();
    const Digests third = deliver(loader);
    const Digests fourth = deliver(loader);
    at::manual_seed(99);
    auto other = make({.num_workers = 1});
    other.load_state_dict(state);
    EXPECT_EQ(deliver(other), third) << behind_the_loop;
    EXPECT_EQ(deliver(other), fourth) << behind_the_loop;
  }
}

TEST(ResumeOutOfOrderTest, EachBatchComesOnce) {
  // The first samples take long: the batches behind overtake them.
  const auto slow_first = [](size_t index) {
    if (index < 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return static_cast<int64_t>(index);
  };
  const DataLoaderOptions options{.batch_size = 2, .num_workers = 3, .in_order = false};
  DataLoader loader(Made{20, slow_first}, options);
  Numbers seen;
  {
    auto batch = loader.begin();
    for (int i = 0; i < 4; ++i, ++batch) {
      for (const int64_t number : numbers(*batch)) seen.push_back(number);
    }
    for (const int64_t number : numbers(*batch)) seen.push_back(number);
  }
  DataLoader other(Made{20, slow_first}, options);
  other.load_state_dict(loader.state_dict());
  for (const int64_t number : epoch_of(other)) seen.push_back(number);
  EXPECT_THAT(seen, testing::UnorderedElementsAreArray(up_to(20)));
}

TEST(ResumeHereTest, AfterABreakTheRestOfThatEpochIsStillThere) {
  DataLoader loader(Counting{6}, {.batch_size = 2});
  for (auto& batch : loader) {
    EXPECT_EQ(numbers(batch), (Numbers{0, 1}));
    break;
  }
  loader.load_state_dict(loader.state_dict());
  EXPECT_EQ(epoch_of(loader), (Numbers{2, 3, 4, 5}));
}

TEST(ResumeHereTest, AStateThatIsRefusedChangesNothing) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const DataLoaderOptions options{
      .batch_size = 2, .shuffle = true, .generator = generator};
  DataLoader loader(Counting{20}, options);
  auto batch = loader.begin();
  ++batch;
  const StateDict good = loader.state_dict();
  for (const char* name : {"place.batches", "place.samples", "epoch", "version",
                           "generator.draws"}) {
    StateDict damaged = good;
    damaged.set(name, int64_t{1} << 62);
    const at::Tensor before = generator.get_state();
    if (std::string(name) == "epoch") continue;  // any number may be one
    EXPECT_THROW(loader.load_state_dict(damaged), std::invalid_argument) << name;
    EXPECT_TRUE(at::equal(generator.get_state(), before)) << name;
  }
  ++batch;  // its epoch goes on
  EXPECT_EQ(numbers(*batch).size(), 2u);
}

TEST(ResumeHereTest, LoadingEndsAnEpochThatIsUnderWay) {
  DataLoader loader(Counting{6}, {.batch_size = 2, .num_workers = 1});
  const StateDict state = loader.state_dict();
  auto batch = loader.begin();
  loader.load_state_dict(state);
  EXPECT_EQ(epoch_of(loader), up_to(6));
  EXPECT_THROW(++batch, std::logic_error);
}

}  // namespace
}  // namespace stoker
