// SPDX-License-Identifier: BSD-3-Clause

// Cases of PyTorch's own tests that are about loaders, samplers and datasets together; the table of
// all of them is pytorch_cases.md.

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stoker/dataloader.h>
#include <stoker/datasets/tensor.h>
#include <stoker/sampler_of.h>
#include <stoker/samplers.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "datasets.h"

namespace stoker {
namespace {

using testing::ElementsAre;

TEST(PyTorchCasesTest, EachSampleComesOnceAndItsLabelWithIt) {
  const at::Tensor data = at::randn({100, 2, 3, 5});
  const at::Tensor labels = at::randperm(50, at::kLong).repeat({2});
  for (const int64_t workers : {0, 4}) {
    for (const int64_t batch_size : {1, 2}) {
      for (const bool shuffle : {false, true}) {
        DataLoader loader(TensorDataset(data, labels, at::arange(100)),
                          {.batch_size = batch_size, .shuffle = shuffle, .num_workers = workers});
        std::set<int64_t> seen;
        int64_t next = 0;
        for (auto& [sample, label, index] : loader) {
          EXPECT_TRUE(sample.equal(data.index_select(0, index)));
          EXPECT_TRUE(label.equal(labels.index_select(0, index)));
          for (const int64_t i : numbers(index)) {
            if (!shuffle) {
              EXPECT_EQ(i, next++);
            }
            seen.insert(i);
          }
        }
        EXPECT_EQ(seen.size(), 100u);
      }
    }
  }
}

TEST(PyTorchCasesTest, AListIsASamplerAndAListOfListsABatchSampler) {
  Numbers backwards = up_to(20);
  std::ranges::reverse(backwards);
  std::vector<Numbers> uneven;
  for (int64_t i = 0; i < 20; i += 5) {
    uneven.push_back({i, i + 1});
    uneven.push_back({i + 2, i + 3, i + 4});
  }
  for (const int64_t workers : {0, 4}) {
    DataLoader one_by_one(Counting{20}, {.sampler = sampler_of(backwards), .num_workers = workers});
    EXPECT_EQ(one_by_one.size(), 20u);
    EXPECT_EQ(epoch_of(one_by_one), backwards);
    DataLoader in_batches(Counting{20},
                          {.batch_sampler = sampler_of(uneven), .num_workers = workers});
    EXPECT_EQ(in_batches.size(), 8u);
    EXPECT_EQ(batches_of(in_batches), uneven);
  }
}

// How often the index that comes most often does.
int64_t most_often(const Numbers& indices) {
  std::map<int64_t, int64_t> times;
  for (const int64_t index : indices) ++times[index];
  return std::ranges::max_element(times, {}, &std::pair<const int64_t, int64_t>::second)->second;
}

TEST(PyTorchCasesTest, ARandomSamplerRepeatsAsOftenAsItMust) {
  constexpr int64_t kSize = 100;
  for (const int64_t num_samples : {kSize - 1, kSize, kSize + 1, 2 * kSize}) {
    for (const int64_t batch_size : {1, 6}) {
      for (const bool replacement : {false, true}) {
        DataLoader loader(Counting{kSize}, {.batch_size = batch_size,
                                            .sampler = std::make_shared<RandomSampler>(
                                                kSize, replacement, num_samples)});
        EXPECT_EQ(loader.size(), static_cast<size_t>((num_samples + batch_size - 1) / batch_size));
        const Numbers indices = epoch_of(loader);
        ASSERT_EQ(indices.size(), static_cast<size_t>(num_samples));
        EXPECT_GE(*std::ranges::min_element(indices), 0);
        EXPECT_LT(*std::ranges::max_element(indices), kSize);
        // With replacement no index at all repeats once in e^43 runs of the smallest of these.
        if (replacement) {
          EXPECT_GT(most_often(indices), 1);
        } else {
          EXPECT_EQ(most_often(indices), (num_samples + kSize - 1) / kSize);
        }
      }
    }
  }
}

TEST(PyTorchCasesTest, TwoLoadersOfOneSeedReadInTurnsYieldTheSame) {
  const auto make = [](bool weighted) -> std::shared_ptr<Sampler<int64_t>> {
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(12);
    if (weighted) {
      return std::make_shared<WeightedRandomSampler>(std::vector<double>(20, 1), 40, true,
                                                     generator);
    }
    return std::make_shared<SubsetRandomSampler>(up_to(20), generator);
  };
  for (const bool weighted : {false, true}) {
    DataLoader one(Counting{20}, {.batch_size = 3, .sampler = make(weighted)});
    DataLoader other(Counting{20}, {.batch_size = 3, .sampler = make(weighted), .num_workers = 2});
    auto at = one.begin();
    for (auto& batch : other) {
      EXPECT_EQ(numbers(*at), numbers(batch));
      ++at;
    }
    EXPECT_TRUE(at == one.end());
  }
}

TEST(PyTorchCasesTest, RanksThatDropTheLastSeeNoSampleTwice) {
  for (const bool shuffle : {false, true}) {
    Numbers all;
    for (int64_t rank = 0; rank < 4; ++rank) {
      DataLoader loader(Counting{9}, {.batch_size = 2,
                                      .sampler = std::make_shared<DistributedSampler>(
                                          9, DistributedSamplerOptions{.num_replicas = 4,
                                                                       .rank = rank,
                                                                       .shuffle = shuffle,
                                                                       .drop_last = true}),
                                      .drop_last = true});
      const Numbers some = epoch_of(loader);
      EXPECT_EQ(some.size(), 2u);
      all.insert(all.end(), some.begin(), some.end());
    }
    EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 8u);
  }
}

TEST(PyTorchCasesTest, ALoaderOfManyLargeBatchesMayBeLeftByAnException) {
  const auto leave = [] {
    DataLoader loader(Counting{10'000'000},
                      {.batch_size = 40960, .shuffle = true, .num_workers = 1});
    for (auto& batch : loader) {
      EXPECT_EQ(batch.size(0), 40960);
      throw std::runtime_error("the program's own");
    }
  };
  EXPECT_EQ(text_of<std::runtime_error>(leave), "the program's own");
}

TEST(PyTorchCasesTest, AnAffinitySetByTheInitFunctionStays) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int64_t core = 0;
  for (int64_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) core = i;  // the last one
  }
  const auto cores_of_worker = [](size_t) {
    at::ones({100, 100}).mm(at::ones({100, 100}));  // its threads might set their own
    cpu_set_t now;
    sched_getaffinity(0, sizeof now, &now);
    Numbers cores;
    for (int64_t i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &now)) cores.push_back(i);
    }
    return at::tensor(cores, at::kLong);
  };
  const auto pin = [core](int64_t) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
  };
  DataLoader loader(Made{4, cores_of_worker}, {.num_workers = 1, .worker_init_fn = pin});
  for (auto& batch : loader) EXPECT_THAT(numbers(batch), ElementsAre(core));
}

}  // namespace
}  // namespace stoker
