// SPDX-License-Identifier: BSD-3-Clause
#include "worker/worker_loop.h"

#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <sys/prctl.h>
#include <torch/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "datasets.h"
#include "loader/hand_out.h"
#include "loader/slot_pool.h"
#include "memory/futex.h"
#include "processes.h"
#include "slot_memory.h"

namespace stoker::detail {
namespace {

// Plays the main process: publishes batches to workers that it forks itself.
class WorkerLoopTest : public testing::Test {
 protected:
  static constexpr uint32_t kWorkers = 2;

  ~WorkerLoopTest() override {
    for (const pid_t pid : pids_) kill(pid, SIGKILL);
    for (const pid_t pid : pids_) wait_for(pid);
  }

  using Get = std::function<int64_t(size_t)>;
  void start(uint32_t id, Get get, std::function<void(int64_t)> init_fn = nullptr,
             bool replacement = false) {
    fetcher_ = std::make_unique<MapFetcher<Made<Get>>>(Made<Get>{1000, std::move(get)});
    const WorkerJob job{&control(), fetcher_.get(), std::move(init_fn)};
    pids_.push_back(fork_child([&] { run_worker(job, id, replacement); }));
  }
  // Tells the workers to stop; how the one that was started first ended.
  std::string stop() {
    control().stop() = 1;
    futex_wake(control().published_word(), 100);
    const std::string end = describe_end(wait_for(pids_.front()));
    pids_.erase(pids_.begin());
    return end;
  }

  Control& control() { return pool_->control(); }
  // Publishes a batch of these many samples, from index 0.
  uint32_t publish(int64_t count) {
    const uint32_t id = pool_->acquire(static_cast<uint64_t>(count)).value();
    const Slot slot = control().slot(id);
    slot.publish(up_to(count), control().published(), {.epoch_seed = 7});
    if (cancel_) slot.header().cancelled = 1;
    control().publish(id);
    if (control().has_sleepers()) futex_wake(control().published_word(), 1);
    return id;
  }
  SlotStatus status_of(uint32_t slot) {
    eventually([&] { return control().slot(slot).header().status != SlotStatus::kOpen; });
    return control().slot(slot).header().status;
  }
  Numbers taken(uint32_t slot) {
    BatchLeaves batch;
    hand_out(pool_, slot, batch);
    return numbers(batch.take_tensor());
  }

  std::shared_ptr<SlotPool> pool_ =
      std::make_shared<SlotPool>(kWorkers, InFlightLimit{4, 4}, uint64_t{1} << 40);
  std::unique_ptr<Fetcher> fetcher_;
  std::vector<pid_t> pids_;
  bool cancel_ = false;
};

int64_t identity(size_t index) { return static_cast<int64_t>(index); }

TEST_F(WorkerLoopTest, AWorkerFillsBatchesUntilItIsToStop) {
  start(0, identity);
  for (int64_t size = 1; size < 6; ++size) {
    const uint32_t slot = publish(size);
    ASSERT_EQ(status_of(slot), SlotStatus::kReady);
    EXPECT_EQ(taken(slot), up_to(size));
  }
  EXPECT_EQ(stop(), "exit 0");
}

TEST_F(WorkerLoopTest, AWorkerThatSleptIsWoken) {
  start(0, identity);
  ASSERT_TRUE(eventually([&] { return control().has_sleepers(); }));
  const uint32_t slot = publish(10);
  EXPECT_EQ(status_of(slot), SlotStatus::kReady);
  ASSERT_TRUE(eventually([&] { return control().has_sleepers(); }));
  EXPECT_EQ(control().worker(0).claim, WorkerRecord::kIdle);
  EXPECT_EQ(stop(), "exit 0");
}

TEST_F(WorkerLoopTest, WorkersFillOneBatchTogether) {
  Shared<std::array<std::atomic<pid_t>, 2>> by;
  // Each of the two samples waits until both are being fetched.
  const auto get = [=](size_t index) {
    (*by)[index] = getpid();
    sleep_until([&] { return (*by)[0] != 0 && (*by)[1] != 0; });
    return static_cast<int64_t>(index);
  };
  start(0, get);
  start(1, get);
  const uint32_t slot = publish(2);
  ASSERT_EQ(status_of(slot), SlotStatus::kReady);
  EXPECT_NE((*by)[0], (*by)[1]);
  EXPECT_EQ(taken(slot), up_to(2));
}

TEST_F(WorkerLoopTest, ACancelledBatchIsFinishedWithoutRunningItsSamples) {
  Shared<std::atomic<int>> runs;
  cancel_ = true;
  start(0, [=](size_t) { return int64_t{++*runs}; });
  EXPECT_EQ(status_of(publish(100)), SlotStatus::kReady);
  EXPECT_EQ(*runs, 0);
}

TEST_F(WorkerLoopTest, AnExceptionFailsTheBatchAndTheWorkerGoesOn) {
  start(0, [](size_t index) {
    if (index == 3) throw std::domain_error("no sample 3");
    return static_cast<int64_t>(index);
  });
  const uint32_t bad = publish(10);
  const uint32_t good = publish(3);
  ASSERT_EQ(status_of(bad), SlotStatus::kFailed);
  ASSERT_EQ(status_of(good), SlotStatus::kReady);
  EXPECT_EQ(taken(good), up_to(3));
  EXPECT_EQ(stop(), "exit 0");
}

TEST_F(WorkerLoopTest, WhatItWorksOnIsRecordedBeforeTheSampleRuns) {
  Shared<std::atomic<bool>> stuck;
  start(0, [=](size_t index) {
    if (index == 2) {
      *stuck = true;
      for (;;) pause();
    }
    return static_cast<int64_t>(index);
  });
  const uint32_t slot = publish(5);
  ASSERT_TRUE(eventually([&] { return stuck->load(); }));
  EXPECT_EQ(control().worker(0).claim, uint64_t{slot} << 32);
  EXPECT_EQ(control().worker(0).progress.row, 2u);
}

TEST_F(WorkerLoopTest, TheInitFunctionRunsOnceBeforeTheFirstSample) {
  Shared<std::atomic<int>> calls;
  const auto init = [=](int64_t id) {
    const WorkerInfo info = worker_info().value();
    if (id == 1 && info.id == 1 && info.num_workers == kWorkers) ++*calls;
  };
  start(
      1, [=](size_t) { return int64_t{*calls}; }, init);
  const uint32_t first = publish(2);
  const uint32_t second = publish(2);
  ASSERT_EQ(status_of(first), SlotStatus::kReady);
  ASSERT_EQ(status_of(second), SlotStatus::kReady);
  EXPECT_EQ(taken(first), (Numbers{1, 1}));
  EXPECT_EQ(taken(second), (Numbers{1, 1}));
}

TEST_F(WorkerLoopTest, AnInitFunctionThatThrowsEndsTheWorkerAndIsTold) {
  start(0, identity, [](int64_t) { throw std::domain_error(std::string(5000, 'x')); });
  ASSERT_EQ(describe_end(wait_for(pids_.front())), "exit 1");
  pids_.clear();
  const WorkerRecord& worker = control().worker(0);
  EXPECT_EQ(worker.state, WorkerState::kInitFailed);
  EXPECT_STREQ(worker.type_name, "std::domain_error");
  EXPECT_EQ(std::string(worker.text), std::string(sizeof worker.text - 1, 'x'));
  EXPECT_EQ(control().troubles(), 1u);
}

// Of a batch of five, worker 0 is killed in sample 2.
TEST_F(WorkerLoopTest, AReplacementFetchesAgainWhatTheDeadWorkerHadNotFinished) {
  Shared<std::atomic<bool>> stuck;
  Shared<std::array<std::atomic<int>, 5>> runs;
  start(0, [=](size_t index) {
    if (++(*runs)[index] == 1 && index == 2) {
      *stuck = true;
      for (;;) pause();
    }
    return static_cast<int64_t>(index);
  });
  const uint32_t slot = publish(5);
  ASSERT_TRUE(eventually([&] { return stuck->load(); }));
  kill(pids_.front(), SIGKILL);
  wait_for(pids_.front());
  pids_.clear();
  EXPECT_EQ(control().slot(slot).header().status, SlotStatus::kOpen);
  control().disown(0);
  EXPECT_EQ(control().worker(0).claim, WorkerRecord::kIdle);
  pids_.push_back(fork_child([&] {
    run_worker(WorkerJob{&control(), fetcher_.get(), nullptr}, 0, true);
  }));
  ASSERT_EQ(status_of(slot), SlotStatus::kReady);
  EXPECT_EQ(taken(slot), up_to(5));
  EXPECT_EQ((*runs)[2], 2);
  EXPECT_EQ((*runs)[4], 1);
}

TEST_F(WorkerLoopTest, AReplacementCompletesABatchWhoseCompleterDied) {
  const uint32_t slot = publish(3);
  const Slot s = control().slot(slot);
  {  // What worker 0 did before it died: all rows, but not the batch's status.
    fetcher_ = std::make_unique<MapFetcher<Made<Get>>>(Made<Get>{1000, identity});
    const auto all = [](uint32_t rest, uint32_t) { return rest; };
    ASSERT_TRUE(control().claim(control().worker(0), all));
    ASSERT_TRUE(HandWorker(*fetcher_).work(s, {0, 3}));
  }
  control().disown(0);
  start(0, identity, nullptr, true);
  ASSERT_EQ(status_of(slot), SlotStatus::kReady);
  EXPECT_EQ(taken(slot), up_to(3));
}

TEST_F(WorkerLoopTest, WorkersAreNamed) {
  start(0, identity);
  EXPECT_TRUE(eventually([&] { return process_entry(pids_[0]).name == "stoker worker 0"; }));
}

}  // namespace
}  // namespace stoker::detail
