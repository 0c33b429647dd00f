// SPDX-License-Identifier: BSD-3-Clause

// Promises: no shared-memory error, ever; a fixed few descriptors however many batches are kept; a
// worker is cheap.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stoker/dataloader.h>
#include <stoker/samplers.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "datasets.h"
#include "process_memory.h"
#include "processes.h"

namespace stoker {
namespace {

// The threads of a pool that other tests have started are not in the child.
std::string in_child_of_one_thread(const std::function<void()>& body) {
  return in_child([&] {
    at::set_num_threads(1);
    body();
  });
}

// For this process alone. Needs the right to mount.
void shrink_shm_to_16_mb() {
  require(unshare(CLONE_NEWNS) == 0, "unshare is not allowed");
  require(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "cannot make / private");
  require(mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=16m") == 0, "cannot mount /dev/shm");
}

uint64_t bytes_in_shm() {
  struct statvfs info {};
  require(statvfs("/dev/shm", &info) == 0, "cannot look at /dev/shm");
  return (info.f_blocks - info.f_bfree) * info.f_frsize;
}

class SmallShmTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string why = in_child(shrink_shm_to_16_mb);
    if (!why.empty()) GTEST_SKIP() << "/dev/shm cannot be made small here: " << why;
  }
};

void require_image(const at::Tensor& image, int64_t value) {
  require(image.min().item<float>() == static_cast<float>(value) &&
              image.max().item<float>() == static_cast<float>(value),
          "image " + std::to_string(value) + " is not whole");
}

TEST_F(SmallShmTest, BatchesLargerThanShmRunToTheEnd) {
  EXPECT_EQ(in_child_of_one_thread([] {
              shrink_shm_to_16_mb();
              const auto image = [](size_t index) {
                return at::full({3, 224, 224}, static_cast<float>(index));
              };
              // 19 MB each.
              DataLoader loader(Made{256, image}, {.batch_size = 32, .num_workers = 4});
              int64_t index = 0;
              for (auto& batch : loader) {
                for (int64_t row = 0; row < 32; ++row) require_image(batch[row], index++);
              }
              require(index == 256, "images are missing");
              require(bytes_in_shm() == 0, "something lies in /dev/shm");
            }),
            "");
}

TEST_F(SmallShmTest, KeptBatchesTakeNoDescriptors) {
  EXPECT_EQ(in_child_of_one_thread([] {
              shrink_shm_to_16_mb();
              const auto sample = [](size_t index) {
                return at::full({3, 32, 32}, static_cast<float>(index));
              };
              DataLoader loader(Made{8 * 500, sample}, {.batch_size = 8, .num_workers = 4});
              const size_t before = open_descriptors();
              std::vector<at::Tensor> kept;
              for (auto& batch : loader) kept.push_back(batch);
              require(open_descriptors() == before, "descriptors have grown from " +
                                                        std::to_string(before) + " to " +
                                                        std::to_string(open_descriptors()));
              require(kept.size() == 500, "batches are missing");
              for (size_t k = 0; k < kept.size(); ++k) {
                for (int64_t row = 0; row < 8; ++row) {
                  require_image(kept[k][row], 8 * static_cast<int64_t>(k) + row);
                }
              }
            }),
            "");
}

TEST(MemoryTest, ALoaderGivesItsDescriptorsBack) {
  {
    DataLoader first(Counting{4}, {.num_workers = 1});
    epoch_of(first);
  }
  const size_t before = open_descriptors();
  for (int i = 0; i < 20; ++i) {
    DataLoader loader(Counting{20}, {.num_workers = 2, .persistent_workers = i % 2 == 0});
    EXPECT_EQ(epoch_of(loader), up_to(20));
  }
  EXPECT_EQ(open_descriptors(), before);
}

// Dropped batches are used again: that many slots would not fit otherwise.
TEST(MemoryTest, DroppedBatchesAreUsedAgain) {
  const auto megabyte = [](size_t index) { return at::full({1 << 18}, static_cast<float>(index)); };
  DataLoader loader(Made{64, megabyte}, {.num_workers = 2, .prefetch_factor = 2});
  std::vector<const void*> places;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader) places.push_back(batch.const_data_ptr());
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  EXPECT_LE(places.size(), 2u * (4 + 2));  // in flight and in hand; each has two places for rows
}

TEST(MemoryTest, AWorkerTakesLessThanAMegabyte) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory is counted too";
  const at::Tensor values = at::rand({100000, 16});
  const auto tiny = [=](size_t index) {
    const auto row = static_cast<int64_t>(index);
    return std::tuple(values[row], row % 10);
  };
  DataLoader loader(Made{100000, tiny}, {.batch_size = 64, .shuffle = true, .num_workers = 2});
  int64_t samples = 0;
  for (auto& [rows, labels] : loader) samples += labels.size(0);
  EXPECT_EQ(samples, 100000);
  const LoaderProcesses processes = loader_processes(2);
  ASSERT_EQ(processes.workers.size(), 2u);
  for (const pid_t worker : processes.workers) {
    const Kilobytes memory = private_memory(worker);
    std::cout << "worker: " << memory.dirty << " kB of its own, " << memory.of_region
              << " kB of the batches' touched by it alone\n";
    RecordProperty("private_kb", std::to_string(memory.dirty));
    EXPECT_GT(memory.dirty, 0);
    EXPECT_LT(memory.dirty, 1024);
  }
}

TEST(MemoryTest, ALimitedAddressSpaceIsEnough) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer reserves terabytes itself";
  EXPECT_EQ(in_child_of_one_thread([] {
              const rlimit limit{uint64_t{8} << 30, uint64_t{8} << 30};
              require(setrlimit(RLIMIT_AS, &limit) == 0, "cannot set the limit");
              const auto sample = [](size_t index) {
                return at::full({100000}, static_cast<double>(index));
              };
              DataLoader one(Made{64, sample}, {.batch_size = 8, .num_workers = 2});
              DataLoader other(Counting{64}, {.batch_size = 8, .num_workers = 2});
              int64_t index = 0;
              for (auto& batch : one) {
                for (int64_t row = 0; row < 8; ++row) {
                  require_image(batch[row], index++);
                }
              }
              require(index == 64 && epoch_of(other) == up_to(64), "batches are missing");
            }),
            "");
}

TEST(MemoryTest, WhereTheAddressSpaceEndsItIsSaid) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer reserves terabytes itself";
  const std::string outcome = in_child_of_one_thread([] {
    const rlimit limit{uint64_t{8} << 30, uint64_t{8} << 30};
    require(setrlimit(RLIMIT_AS, &limit) == 0, "cannot set the limit");
    DataLoader loader(Counting{1 << 20}, {.num_workers = 2});
    std::vector<at::Tensor> kept;
    for (auto& batch : loader) kept.push_back(batch);
  });
  EXPECT_NE(outcome.find("the program keeps"), std::string::npos) << outcome;
  EXPECT_NE(outcome.find("clone"), std::string::npos) << outcome;
}

// Batches of 8 MB where 40 may be taken.
auto megabytes_of(int64_t count) {
  return Made{64, [=](size_t index) { return at::full({count << 18}, static_cast<float>(index)); }};
}

TEST(SharedMemoryLimitTest, FewerBatchesAreInFlightWhereMoreDoNotFit) {
  constexpr int64_t kMegabyte = 1 << 20;
  DataLoader loader(megabytes_of(2), {.batch_size = 4,
                                      .num_workers = 2,
                                      .prefetch_factor = 2,
                                      .shared_memory_limit = 40 * kMegabyte});
  std::set<const void*> places;
  int64_t index = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader) {
      places.insert(batch.const_data_ptr());
      EXPECT_EQ(batch[3][0].item<float>(), static_cast<float>(index % 64 + 3));
      index += 4;
    }
  }
  EXPECT_EQ(index, 3 * 64);
  EXPECT_LE(places.size(), 2u * 4);  // each slot has two places for rows
}

TEST(SharedMemoryLimitTest, BatchesThatTheProgramKeepsCount) {
  DataLoader loader(megabytes_of(2), {.batch_size = 4,
                                      .num_workers = 2,
                                      .prefetch_factor = 1,
                                      .shared_memory_limit = uint64_t{40} << 20});
  std::vector<at::Tensor> kept;
  try {
    for (auto& batch : loader) kept.push_back(batch);
    FAIL() << "64 MB were kept within a limit of 40";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(kept.size(), 4u);
    EXPECT_NE(std::string(error.what())
                  .find("shared_memory_limit is 40 MB, and the program keeps "
                        "4 batches"),
              std::string::npos)
        << error.what();
  }
  kept.clear();
  int64_t batches = 0;
  for ([[maybe_unused]] auto& batch : loader) ++batches;
  EXPECT_EQ(batches, 16);
}

TEST(SharedMemoryLimitTest, AnEpochThatWasLeftGivesItsMemoryToTheNext) {
  DataLoader loader(megabytes_of(2), {.batch_size = 4,
                                      .num_workers = 2,
                                      .prefetch_factor = 1,
                                      .shared_memory_limit = uint64_t{20} << 20});
  for (int epoch = 0; epoch < 20; ++epoch) loader.begin();
  int64_t batches = 0;
  for ([[maybe_unused]] auto& batch : loader) ++batches;
  EXPECT_EQ(batches, 16);
}

TEST(SharedMemoryLimitTest, ASampleThatDoesNotFitIsRefusedBeforeItsMemoryIsTouched) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(megabytes_of(20),
                      {.batch_size = 4, .num_workers = workers, .shared_memory_limit = 40 << 20});
    try {
      loader.begin();
      FAIL() << "80 MB fitted into 40";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("a batch of 4 such samples takes 80 MB"),
                std::string::npos)
          << error.what();
    }
  }
}

// A permutation of them in memory would take 800 MB.
TEST(HugeDatasetTest, AHundredMillionSamplesInRandomOrderTakeNoMemory) {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  constexpr size_t kSamples = 100'000'000;
  for (const int64_t workers : {0, 2}) {
    DataLoader small(Counting{64}, {.num_workers = workers});  // libtorch's first operations
    epoch_of(small);
    const int64_t before = process_status(getpid(), "RssAnon:");
    const auto start = std::chrono::steady_clock::now();
    DataLoader loader(Counting{kSamples},
                      {.batch_size = 64,
                       .sampler = std::make_shared<KeyedRandomSampler>(int64_t{kSamples}),
                       .num_workers = workers});
    const auto made = std::chrono::steady_clock::now();
    auto it = loader.begin();
    const auto first = std::chrono::steady_clock::now();
    std::set<int64_t> seen;
    for (int batch = 0; batch < 100; ++batch, ++it) {
      for (const int64_t index : numbers(*it)) seen.insert(index);
    }
    EXPECT_EQ(seen.size(), 6400u);
    EXPECT_LT(*seen.begin(), int64_t{kSamples} / 100);
    EXPECT_GT(*seen.rbegin(), int64_t{kSamples} / 100 * 99);
    const int64_t more = process_status(getpid(), "RssAnon:") - before;
    std::cout << kSamples << " samples, " << workers << " workers: loader after "
              << Milliseconds(made - start).count() << " ms, first batch "
              << Milliseconds(first - made).count() << " ms later, " << more << " kB after 100\n";
    if (!kSanitized) {
      EXPECT_LT(more, 4096);
    }
  }
}

}  // namespace
}  // namespace stoker
