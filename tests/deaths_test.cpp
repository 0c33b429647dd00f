// SPDX-License-Identifier: BSD-3-Clause

// More that goes wrong in workers and datasets; see faults_test.cpp for the first of each kind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <sys/resource.h>
#include <torch/types.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "datasets.h"
#include "processes.h"

namespace stoker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Sample 17 does the deed the first time it is fetched.
template <class Deed>
auto once(Deed deed) {
  Shared<std::atomic<bool>> done;
  return Made{64, [=](size_t index) {
                if (index == 17 && !done->exchange(true)) deed();
                return static_cast<int64_t>(index);
              }};
}

TEST(DeathsTest, ExitZeroIsADeathToo) {
  DataLoader loader(once([] { std::exit(0); }), {.batch_size = 8, .num_workers = 2});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().exit_status, 0);
  EXPECT_EQ(error->facts().index, 17);
  EXPECT_FALSE(error->facts().signal);
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

TEST(DeathsTest, AbortIsToldWithItsSignal) {
  const auto abort_quietly = [] {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    std::abort();
  };
  DataLoader loader(once(abort_quietly), {.batch_size = 8, .num_workers = 2});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().signal, SIGABRT);
  EXPECT_THAT(error->what(), HasSubstr("num_workers = 0 under a debugger"));
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

int overflow_the_stack(const volatile char* above) {
  volatile char frame[4096];
  frame[0] = *above;
  return getppid() == 0 ? 0 : overflow_the_stack(frame) + frame[0];
}

TEST(DeathsTest, AStackOverflowIsToldWithItsSample) {
  const auto overflow = [] {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    overflow_the_stack("x");
  };
  DataLoader loader(once(overflow), {.batch_size = 8, .num_workers = 2});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  if (!kSanitized) {  // which exits with its own report
    EXPECT_EQ(error->facts().signal, SIGSEGV);
    EXPECT_THAT(error->what(), HasSubstr("(Segmentation fault) at sample index 17; run with"));
  }
  EXPECT_EQ(error->facts().index, 17);
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

TEST(DeathsTest, TheBatchesBeforeAreDeliveredFirstAlsoIfTheWorkerIsLongDead) {
  DataLoader loader(once([] { _exit(3); }),
                    {.batch_size = 4, .num_workers = 2, .prefetch_factor = 8});
  auto it = loader.begin();
  ASSERT_EQ(loader_processes(1).workers.size(), 1u);
  for (int64_t batch = 0; batch < 3; ++batch, ++it) EXPECT_EQ(numbers(*it).front(), 4 * batch);
  EXPECT_EQ(numbers(*it).front(), 12);
  EXPECT_THROW(++it, WorkerError);
}

// A worker that has nothing to do is missed when main waits for a batch.
TEST(DeathsTest, AWorkerKilledWhileIdleIsTold) {
  Shared<std::atomic<bool>> gate;
  Shared<std::atomic<int>> fetched;
  const auto dataset = Made{64, [=](size_t index) {
                              if (index >= 3) sleep_until([&] { return gate->load(); });
                              ++*fetched;
                              return static_cast<int64_t>(index);
                            }};
  DataLoader loader(dataset, {.num_workers = 2, .prefetch_factor = 1});
  auto it = loader.begin();  // batches 1 and 2 are in flight, 3 is not: both workers run dry
  const auto workers = loader_processes(2).workers;
  ASSERT_EQ(workers.size(), 2u);
  ASSERT_TRUE(eventually([&] {
    return *fetched == 3 && process_entry(workers[0]).state == 'S' &&
           process_entry(workers[1]).state == 'S';
  }));
  kill(workers[0], SIGKILL);
  ASSERT_TRUE(eventually([&] { return !is_alive(workers[0]); }));
  ++it;
  ++it;
  EXPECT_EQ(numbers(*it), Numbers{2});
  try {
    ++it;
    ADD_FAILURE() << "no error";
  } catch (const WorkerError& error) {
    EXPECT_EQ(error.facts().signal, SIGKILL);
    EXPECT_EQ(error.facts().pid, workers[0]);
    EXPECT_FALSE(error.facts().index);
  }
  *gate = true;
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

TEST(DeathsTest, ManyDeathsInARowAreAllSurvived) {
  const auto deadly = Made{64, [](size_t index) {
                             if (index == 17) kill(getpid(), SIGKILL);
                             return static_cast<int64_t>(index);
                           }};
  DataLoader loader(deadly, {.batch_size = 8, .num_workers = 3});
  for (int epoch = 0; epoch < 10; ++epoch) {
    const auto error = error_of(loader);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->facts().signal, SIGKILL);
    EXPECT_EQ(error->facts().index, 17);
    EXPECT_EQ(loader.stats().epoch.batches, 2);
  }
}

TEST(DeathsTest, WithoutOrderADeathIsToldToo) {
  DataLoader loader(once([] { _exit(3); }), {.batch_size = 8, .num_workers = 2, .in_order = false});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().exit_status, 3);
  EXPECT_EQ(epoch_of(loader).size(), 64u);
}

TEST(DeathsTest, WorkersThatDoNotPersistAreReplacedAfterADeath) {
  DataLoader loader(once([] { _exit(3); }),
                    {.batch_size = 8, .num_workers = 2, .persistent_workers = false});
  ASSERT_TRUE(error_of(loader));
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

struct Whole {
  int mistake;
  int64_t get(size_t index) { return static_cast<int64_t>(index); }
  std::vector<int64_t> get_batch(std::span<const size_t> indices) {
    std::vector<int64_t> batch(indices.begin(), indices.end());
    if (indices.front() == 16 && mistake == 1) throw std::domain_error("no such page");
    if (indices.front() == 16 && mistake == 2) batch.pop_back();
    return batch;
  }
  size_t size() const { return 64; }
};

TEST(DeathsTest, WhatGetBatchThrowsIsToldWithoutAnIndex) {
  DataLoader loader(Whole{1}, {.batch_size = 8, .num_workers = 2});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().type_name, "std::domain_error");
  EXPECT_FALSE(error->facts().index);
  EXPECT_THAT(error->what(), HasSubstr("no such page"));
  DataLoader here(Whole{1}, {.batch_size = 8});
  EXPECT_THROW(epoch_of(here), std::domain_error);
}

TEST(DeathsTest, AShortAnswerOfGetBatchIsAnError) {
  DataLoader loader(Whole{2}, {.batch_size = 8, .num_workers = 2});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("get_batch returned 7 samples for 8 indices"));
  DataLoader here(Whole{2}, {.batch_size = 8});
  EXPECT_THROW(epoch_of(here), std::length_error);
}

TEST(DeathsTest, ASampleOfMoreBytesThanAProcessMayHaveIsRefused) {
  const auto endless = Made{8, [](size_t) { return at::zeros({1}).expand({int64_t{1} << 60}); }};
  DataLoader loader(endless, {.batch_size = 2, .num_workers = 2});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().type_name, "std::length_error");
  EXPECT_EQ(error->facts().index, 0);
  EXPECT_THAT(
      error->what(),
      AllOf(HasSubstr("a batch of 2 such samples takes more than there is, and it may take"),
            HasSubstr(" of shared memory; use a smaller batch_size or prefetch_factor, or "
                      "raise shared_memory_limit")));
}

TEST(DeathsTest, WithoutWorkersWhateverIsThrownComesAsItIs) {
  DataLoader loader(once([] { throw 42; }), {.batch_size = 8});
  auto it = loader.begin();
  ++it;
  for (int again = 0; again < 2; ++again) {
    try {
      ++it;
      ADD_FAILURE() << "no error";
    } catch (int thrown) {
      EXPECT_EQ(thrown, 42);
    }
  }
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

TEST(DeathsTest, WithoutWorkersSamplesThatDoNotFitTogetherAreNamedToo) {
  const auto odd = Made{8, [](size_t index) { return at::zeros({index == 5 ? 4 : 3}); }};
  DataLoader loader(odd, {.batch_size = 8});
  try {
    loader.begin();
    FAIL() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot collate samples 0 and 5: Float [3] and Float [4]"));
  }
}

TEST(DeathsTest, TheFactsOfAnInitFunctionThatThrewAreTold) {
  DataLoader loader(Counting{8}, {.num_workers = 2, .worker_init_fn = [](int64_t id) {
                                    if (id == 1) throw std::domain_error("no licence");
                                    for (;;) pause();
                                  }});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().worker_id, 1);
  EXPECT_EQ(error->facts().type_name, "std::domain_error");
  EXPECT_GT(error->facts().pid.value_or(0), 0);
}

}  // namespace
}  // namespace stoker
