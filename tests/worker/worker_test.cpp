// SPDX-License-Identifier: BSD-3-Clause

// What code inside a dataset, or a worker_init_fn, learns of the place it runs in.

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/types.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "datasets.h"
#include "processes.h"

namespace stoker {
namespace {

using testing::UnorderedElementsAre;

TEST(WorkerTest, OutsideOfALoaderThereIsNoInfo) {
  EXPECT_FALSE(worker_info());
  for (const int64_t workers : {0, 1}) {
    DataLoader loader(Counting{4}, {.num_workers = workers});
    auto it = loader.begin();
    EXPECT_FALSE(worker_info());
  }
}

TEST(WorkerTest, GetLearnsItsWorker) {
  const auto told = [](size_t) {
    const WorkerInfo info = worker_info().value();
    return std::tuple(info.id, info.num_workers);
  };
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Made{50, told}, {.batch_size = 50, .num_workers = workers});
    auto it = loader.begin();
    auto& [id, num_workers] = *it;
    EXPECT_TRUE(id.ge(0).logical_and(id.lt(std::max<int64_t>(workers, 1))).all().item<bool>());
    EXPECT_TRUE(num_workers.eq(workers).all().item<bool>());
  }
}

// Each process's own copy of the dataset, set up as worker_init_fn does it in Python.
struct Adjustable {
  int64_t offset = 0;
  int64_t get(size_t index) const {
    EXPECT_EQ(&worker_info().value().dataset<Adjustable>(), this);
    return offset + static_cast<int64_t>(index);
  }
  size_t size() const { return 4; }
};

TEST(WorkerTest, InfoLeadsToTheDataset) {
  const auto init = [](int64_t id) {
    worker_info().value().dataset<Adjustable>().offset = 10 + id;
  };
  DataLoader loader(Adjustable{}, {.num_workers = 1, .worker_init_fn = init});
  EXPECT_EQ(epoch_of(loader), (Numbers{10, 11, 12, 13}));
  DataLoader here(Adjustable{}, {});
  EXPECT_EQ(epoch_of(here), (Numbers{0, 1, 2, 3}));
}

TEST(WorkerTest, ADatasetOfAnotherTypeIsRefused) {
  const auto ask = [](size_t) { return worker_info().value().dataset<Adjustable>().offset; };
  DataLoader loader(Made{1, ask}, {});
  EXPECT_THAT(text_of<std::logic_error>([&] { loader.begin(); }),
              testing::StartsWith("stoker: the dataset is asked for as a stoker::(anonymous "
                                  "namespace)::Adjustable, and is a stoker::Made<"));
  EXPECT_EQ(text_of<std::logic_error>([] { WorkerInfo{}.dataset<int>(); }),
            "stoker: the dataset is asked for as a int, and is not there");
}

// The seeds of two epochs.
Numbers seeds(DataLoaderOptions options) {
  options.seed = 11;
  DataLoader loader(
      Made{40, [](size_t) { return static_cast<int64_t>(worker_info().value().seed); }}, options);
  Numbers all;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const int64_t seed : epoch_of(loader)) all.push_back(seed);
  }
  return all;
}

TEST(WorkerTest, TheSeedIsThatOfThePositionInTheEpoch) {
  const Numbers expected = seeds({.batch_size = 4});
  EXPECT_EQ(std::set<int64_t>(expected.begin(), expected.end()).size(), 80u);  // all differ
  EXPECT_EQ(seeds({.batch_size = 4, .num_workers = 3}), expected);
  EXPECT_EQ(seeds({.batch_size = 7, .num_workers = 2, .persistent_workers = false}), expected);
}

TEST(WorkerTest, GetBatchLearnsTheSeedOfItsFirstSample) {
  struct Whole {
    int64_t get(size_t) { throw std::logic_error("get_batch was to be called"); }
    std::vector<int64_t> get_batch(std::span<const size_t> indices) {
      return std::vector(indices.size(), static_cast<int64_t>(worker_info().value().seed));
    }
    size_t size() const { return 40; }
  };
  const Numbers expected = seeds({});
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Whole{}, {.batch_size = 10, .num_workers = workers, .seed = 11});
    const auto batches = batches_of(loader);
    ASSERT_EQ(batches.size(), 4u);
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(batches[k], Numbers(10, expected[10 * k]));
  }
}

TEST(WorkerTest, ALoaderInsideGetKeepsTheInfoOfTheOuterOne) {
  const auto nested = [](size_t) {
    const WorkerInfo before = worker_info().value();
    DataLoader inner(Counting{3});
    for ([[maybe_unused]] auto& batch : inner) {
    }
    const WorkerInfo after = worker_info().value();
    return int64_t{before.seed == after.seed && before.id == after.id};
  };
  for (const int64_t workers : {0, 1}) {
    DataLoader loader(Made{4, nested}, {.num_workers = workers});
    EXPECT_EQ(epoch_of(loader), Numbers(4, 1));
  }
}

struct Inits {
  std::atomic<int> calls{0};
  std::array<std::atomic<int>, 3> of_worker{};
  std::atomic<int> not_told{0};  // calls without the right worker_info
};

auto count_in(const Shared<Inits>& inits) {
  return [=](int64_t id) {
    ++inits->calls;
    ++inits->of_worker[static_cast<size_t>(id)];
    const auto info = worker_info();
    if (!info || info->id != id || info->num_workers != 3) ++inits->not_told;
  };
}

TEST(WorkerTest, TheInitFunctionRunsOncePerProcess) {
  for (const bool persistent : {true, false}) {
    SCOPED_TRACE(persistent);
    Shared<Inits> inits;
    const int forks = persistent ? 1 : 3;
    DataLoader loader(
        Counting{50},
        {.num_workers = 3, .worker_init_fn = count_in(inits), .persistent_workers = persistent});
    for (int epoch = 1; epoch <= 3; ++epoch) {
      auto it = loader.begin();
      const int calls = 3 * (persistent ? 1 : epoch);
      EXPECT_TRUE(eventually([&] { return inits->calls == calls; }));
    }
    EXPECT_THAT((std::vector<int>{inits->of_worker[0], inits->of_worker[1], inits->of_worker[2]}),
                UnorderedElementsAre(forks, forks, forks));
    EXPECT_EQ(inits->not_told, 0);
  }
}

TEST(WorkerTest, WhatTheInitFunctionSetsIsThereInGet) {
  static int64_t offset = 0;
  DataLoader loader(Made{10, [](size_t index) { return static_cast<int64_t>(index) + offset; }},
                    {.num_workers = 2, .worker_init_fn = [](int64_t) { offset = 100; }});
  EXPECT_EQ(numbers(*loader.begin()), Numbers{100});
  EXPECT_EQ(offset, 0);  // not in this process
}

TEST(WorkerTest, WithoutWorkersTheInitFunctionIsNotCalled) {
  Shared<Inits> inits;
  DataLoader loader(Counting{5}, {.worker_init_fn = count_in(inits)});
  EXPECT_EQ(epoch_of(loader), up_to(5));
  EXPECT_EQ(inits->calls, 0);
}

// at::parallel_for would deadlock or misbehave on a thread pool that did not survive the fork.
TEST(WorkerTest, WorkersComputeOnOneThread) {
  at::mm(at::rand({300, 300}), at::rand({300, 300}));  // starts the program's threads
  DataLoader loader(
      Made{4,
           [](size_t) {
             const at::Tensor product = at::mm(at::ones({300, 300}), at::ones({300, 300}));
             return std::tuple(int64_t{at::get_num_threads()}, product[0][0].item<float>());
           }},
      {.batch_size = 4, .num_workers = 2});
  auto it = loader.begin();
  auto& [threads, product] = *it;
  EXPECT_EQ(numbers(threads), Numbers(4, 1));
  EXPECT_EQ(numbers(product), Numbers(4, 300));
}

TEST(WorkerTest, AnErrorKeepsItsFacts) {
  WorkerError::Facts facts;
  facts.worker_id = 3;
  facts.pid = 77;
  facts.signal = 9;
  facts.index = 12;
  const WorkerError error("what", facts);
  const WorkerError copy = error;
  EXPECT_STREQ(copy.what(), "what");
  EXPECT_EQ(copy.facts().worker_id, 3);
  EXPECT_EQ(copy.facts().pid, 77);
  EXPECT_EQ(copy.facts().signal, 9);
  EXPECT_EQ(copy.facts().index, 12);
  EXPECT_FALSE(copy.facts().exit_status);
  EXPECT_FALSE(copy.facts().type_name);
}

}  // namespace
}  // namespace stoker
