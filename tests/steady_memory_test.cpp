// SPDX-License-Identifier: BSD-3-Clause

// Promise: what a loader takes after fifty epochs it takes after a thousand.

#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <tuple>
#include <vector>

#include "datasets.h"
#include "process_memory.h"
#include "processes.h"

namespace stoker {
namespace {

// What makes work of every kind: rows, a row whose length differs from batch to batch, a string.
std::tuple<at::Tensor, at::Tensor, std::string> sample_of(size_t i) {
  const auto value = static_cast<int>(i);
  return {at::full({16, 16}, value, at::kFloat), at::full({1 + value / 8}, value, at::kInt),
          std::string(i, 'x')};
}

template <class Loader>
void run_epochs(Loader& loader, int epochs) {
  for (; epochs > 0; --epochs) {
    int64_t samples = 0;
    for (const auto& [images, rows, texts] : loader) {
      samples += images.size(0);
      ASSERT_EQ(static_cast<int64_t>(texts.back().size()), rows[7][0].template item<int>());
    }
    ASSERT_EQ(samples, 64);
  }
}

struct Taken {
  Kilobytes memory;
  int64_t resident_shared;
  size_t mapped;
  size_t descriptors;
};

Taken taken_by(pid_t pid) {
  return {private_memory(pid), process_status(pid, "RssShmem:"), mappings(pid),
          open_descriptors(std::to_string(pid))};
}

void expect_no_more(const std::string& who, const Taken& before, const Taken& after) {
  std::cout << who << ": " << before.memory.dirty << " kB of its own, then " << after.memory.dirty
            << " kB; of the batches' " << before.resident_shared << " kB, then "
            << after.resident_shared << " kB\n";
  if (!kSanitized) {  // whose own memory grows
    EXPECT_LT(after.memory.dirty, before.memory.dirty + 1024) << who;
    EXPECT_LT(after.mapped, before.mapped + 3) << who;  // malloc's, one may come or go
  }
  // Which slots are used, and how much of each, is not the same in all epochs.
  EXPECT_LT(after.resident_shared, before.resident_shared + 4096) << who;
  EXPECT_EQ(after.descriptors, before.descriptors) << who;
}

TEST(SteadyMemoryTest, AThousandEpochsTakeNoMoreThanFifty) {
  DataLoader loader(Made{64, sample_of}, {.batch_size = 8, .shuffle = false, .num_workers = 2});
  run_epochs(loader, 50);
  const std::vector<pid_t> children = loader_processes(2).all();
  ASSERT_EQ(children.size(), 3u);
  std::vector<Taken> before = {taken_by(getpid())};
  for (const pid_t child : children) before.push_back(taken_by(child));
  run_epochs(loader, 950);
  expect_no_more("main", before[0], taken_by(getpid()));
  for (size_t i = 0; i < children.size(); ++i) {
    expect_no_more(process_entry(children[i]).name, before[1 + i], taken_by(children[i]));
  }
}

TEST(SteadyMemoryTest, WorkersThatDoNotPersistLeaveNothingBehind) {
  DataLoader loader(Made{64, sample_of},
                    {.batch_size = 8, .num_workers = 2, .persistent_workers = false});
  run_epochs(loader, 20);
  const Taken before = taken_by(getpid());
  run_epochs(loader, 100);
  expect_no_more("main", before, taken_by(getpid()));
}

TEST(SteadyMemoryTest, NorDoLoaders) {
  const auto run = [](int loaders) {
    for (; loaders > 0; --loaders) {
      DataLoader loader(Made{64, sample_of}, {.batch_size = 8, .num_workers = 1});
      run_epochs(loader, 1);
    }
  };
  run(10);
  const Taken before = taken_by(getpid());
  run(50);
  expect_no_more("main", before, taken_by(getpid()));
}

}  // namespace
}  // namespace stoker
