// SPDX-License-Identifier: BSD-3-Clause

// Promise: a loader works that is built after the program has used thread pools of any kind, and
// while other threads are in the middle of things.

#include "supervisor/worker_threads.h"

#include <ATen/Parallel.h>
#include <ATen/ops/conv2d.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "datasets.h"
#include "openmp_region.h"
#include "processes.h"

// As OpenCV and OpenBLAS have them.
namespace cv {
int threads = -1;
void setNumThreads(int count);
void setNumThreads(int count) { threads = count; }
}  // namespace cv
extern "C" {
int openblas_threads = -1;
void openblas_set_num_threads(int count);
void openblas_set_num_threads(int count) { openblas_threads = count; }
}

namespace stoker {
namespace {

using detail::WorkerThreads;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

TEST(WorkerThreadsTest, TheChildsLibrariesAreToldAndTheProgramsAreNot) {
  EXPECT_EQ(in_child([] {
              WorkerThreads threads;
              threads.limit();
              require(at::get_num_threads() == 1, "ATen has more threads");
              require(threads_of_region(0) == 1, "OpenMP has more threads");
              require(cv::threads == 0, "OpenCV was not told");
              require(openblas_threads == 1, "OpenBLAS was not told");
            }),
            "");
  EXPECT_EQ(cv::threads, -1);
  EXPECT_EQ(openblas_threads, -1);
}

TEST(WorkerThreadsTest, TheChildsEnvironmentSaysSoAndKeepsTheRest) {
  setenv("OMP_NUM_THREADS", "8", 1);
  setenv("STOKER_TEST_VARIABLE", "kept", 1);
  EXPECT_EQ(in_child([] {
              WorkerThreads threads;
              threads.limit();
              for (const char* name : {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                       "BLIS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM"}) {
                require(variable(name) == "1", std::string(name) + " is not 1");
              }
              require(variable("STOKER_TEST_VARIABLE") == "kept", "a variable was lost");
              setenv("STOKER_TEST_VARIABLE", "changed", 1);  // works on it as on any other
              setenv("OMP_NUM_THREADS", "3", 1);
              unsetenv("MKL_NUM_THREADS");
              require(variable("STOKER_TEST_VARIABLE") == "changed", "cannot change it");
              require(variable("OMP_NUM_THREADS") == "3", "cannot change what was set");
              require(variable("MKL_NUM_THREADS").empty(), "cannot unset what was set");
            }),
            "");
  EXPECT_EQ(variable("OMP_NUM_THREADS"), "8");
  unsetenv("OMP_NUM_THREADS");
  unsetenv("STOKER_TEST_VARIABLE");
}

// Whose own number is set, or whose pool is in use: the worker goes on.
TEST(WorkerThreadsTest, APoolOfTheProgramForAtLaunchIsNoHindrance) {
  std::atomic<bool> ran{false};
  at::launch([&] { ran = true; });
  sleep_until([&] { return ran.load(); });
  DataLoader loader(Counting{20}, {.batch_size = 4, .num_workers = 2});
  EXPECT_EQ(epoch_of(loader), up_to(20));
}

// What a sample computes with each kind of pool.
auto computing() {
  return Made{24, [](size_t index) {
                const at::Tensor product = at::mm(at::ones({200, 200}), at::ones({200, 200}));
                const at::Tensor image = at::ones({4, 3, 32, 32});
                const at::Tensor convolved = at::conv2d(image, at::ones({8, 3, 3, 3}));
                const at::Tensor sum = at::ones({1 << 20}) + at::ones({1 << 20});
                return std::tuple(static_cast<int64_t>(index), parallel_sum(100000),
                                  int64_t{threads_of_region(0)}, int64_t{threads_of_region(4)},
                                  product[0][0].item<float>(), convolved[0][0][0][0].item<float>(),
                                  sum[5].item<float>());
              }};
}

void expect_computed(DataLoaderOptions options) {
  DataLoader loader(computing(), std::move(options));
  Numbers seen;
  for (auto& [index, omp_sum, threads, threads_of_four, product, convolved, sum] : loader) {
    for (const int64_t i : numbers(index)) seen.push_back(i);
    EXPECT_TRUE(omp_sum.eq(int64_t{100000} * 99999 / 2).all().template item<bool>());
    EXPECT_TRUE(threads.eq(1).all().template item<bool>());
    EXPECT_TRUE(threads_of_four.eq(1).all().template item<bool>());
    EXPECT_TRUE(product.eq(200).all().template item<bool>());
    EXPECT_TRUE(convolved.eq(27).all().template item<bool>());
    EXPECT_TRUE(sum.eq(2).all().template item<bool>());
  }
  EXPECT_EQ(seen, up_to(24));
}

void use_all_pools() {
  EXPECT_EQ(parallel_sum(1 << 20), (int64_t{1} << 20) * ((1 << 20) - 1) / 2);
  threads_of_region(4);
  at::Tensor weights = at::ones({8, 3, 3, 3}).requires_grad_();
  const at::Tensor loss = at::conv2d(at::ones({16, 3, 64, 64}), weights).sum() +
                          at::mm(at::ones({500, 500}), at::ones({500, 500})).sum() +
                          (at::ones({1 << 22}) + 1).sum();
  torch::autograd::backward({loss}, {});
  EXPECT_TRUE(weights.grad().defined());
}

TEST(WorkerThreadsTest, ALoaderBuiltAfterThePoolsWereUsedDelivers) {
  at::set_num_threads(4);  // more than this machine may have cores
  use_all_pools();
  expect_computed({.batch_size = 4, .num_workers = 2});
  use_all_pools();  // the program's own are as before
  expect_computed({.batch_size = 4, .num_workers = 3, .persistent_workers = false});
  EXPECT_EQ(threads_of_region(4), 4);
}

TEST(WorkerThreadsTest, ALoaderBuiltByAnotherThreadThatUsedThePoolsDelivers) {
  std::thread([] {
    use_all_pools();
    expect_computed({.batch_size = 4, .num_workers = 2});
  }).join();
}

// Threads that do one thing without end.
class BusyThreads {
 public:
  template <class Deed>
  BusyThreads(int count, Deed deed) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, deed] {
        while (!stop_) deed();
      });
    }
  }
  ~BusyThreads() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

// Each fork finds some lock held, sooner or later.
void build_many(int loaders) {
  for (int i = 0; i < loaders; ++i) {
    const auto drawing = Made{12, [](size_t index) {
                                const std::vector<char> some(1 << 16);
                                at::rand({2});
                                return static_cast<int64_t>(index + some[index]);
                              }};
    DataLoader loader(drawing, {.batch_size = 4, .num_workers = 2});
    ASSERT_EQ(epoch_of(loader), up_to(12)) << "loader " << i;
  }
}

TEST(WorkerThreadsTest, LoadersBuiltWhileOtherThreadsAllocateDeliver) {
  const BusyThreads busy(3, [] {
    std::vector<std::vector<char>> blocks;
    for (size_t bytes = 16; bytes < (1 << 20); bytes *= 2) blocks.emplace_back(bytes);
  });
  build_many(50);
}

TEST(WorkerThreadsTest, LoadersBuiltWhileOtherThreadsDrawRandomNumbersDeliver) {
  const BusyThreads busy(2, [] { at::rand({1000}); });
  build_many(30);
}

TEST(WorkerThreadsTest, LoadersBuiltWhileOtherThreadsSetTheEnvironmentDeliver) {
  const BusyThreads busy(1, [] { setenv("STOKER_TEST_VARIABLE", "a value", 1); });
  build_many(30);
  unsetenv("STOKER_TEST_VARIABLE");
}

}  // namespace
}  // namespace stoker
