// SPDX-License-Identifier: BSD-3-Clause
#include "loader/worker_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <optional>

#include "slot_memory.h"

namespace stoker::detail {
namespace {

using testing::HasSubstr;

// Three workers, and three batches in flight of four samples each: batch k has 10 k .. 10 k + 3.
class WorkerWatchTest : public testing::Test {
 protected:
  WorkerWatchTest() {
    for (uint32_t k = 0; k < 3; ++k) {
      std::vector<int64_t> indices = up_to(4);
      for (int64_t& index : indices) index += 10 * k;
      control().slot(k).publish(indices, control().published(), {});
      in_flight_.push_back({control().published(), k});
      control().publish(k);
    }
    for (uint32_t id = 0; id < 3; ++id) {
      worker(id).state = WorkerState::kRunning;
      worker(id).setup = Setup::kDone;
    }
    control().supervised() = 1;
  }

  Control& control() { return slots_.control(); }
  WorkerRecord& worker(uint32_t id) { return control().worker(id); }
  // It is at this row of that batch.
  void put(uint32_t id, uint32_t batch, uint32_t row) {
    worker(id).claim = uint64_t{batch} << 32 | in_flight_[batch].sequence;
    worker(id).progress.row = row;
  }
  void die(uint32_t id, int wait_status = SIGKILL) {
    worker(id).pid = 100 + static_cast<int>(id);
    worker(id).wait_status = wait_status;
    worker(id).state = WorkerState::kDead;
    ++control().troubles();
  }
  std::optional<WorkerError> trouble(bool in_order = true) {
    return find_trouble(control(), in_flight_, in_order);
  }

  HeapSlots slots_{3, 4};
  std::deque<InFlight> in_flight_;
};

TEST_F(WorkerWatchTest, WithoutTroubleThereIsNone) {
  put(0, 0, 1);
  EXPECT_FALSE(trouble());
}

TEST_F(WorkerWatchTest, ADeathInTheFirstBatchIsToldWithItsSample) {
  put(1, 0, 2);
  die(1);
  const auto error = trouble();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().worker_id, 1);
  EXPECT_EQ(error->facts().pid, 101);
  EXPECT_EQ(error->facts().signal, SIGKILL);
  EXPECT_EQ(error->facts().index, 2);
}

TEST_F(WorkerWatchTest, ADeathFurtherOnWaitsForItsTurn) {
  put(1, 1, 3);
  die(1);
  EXPECT_FALSE(trouble());
  in_flight_.pop_front();
  const auto error = trouble();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().index, 13);
}

TEST_F(WorkerWatchTest, WithoutOrderEveryDeathIsToldAtOnce) {
  put(1, 2, 0);
  die(1);
  EXPECT_EQ(trouble(false).value().facts().index, 20);
}

TEST_F(WorkerWatchTest, IfNobodyIsLeftADeathFurtherOnIsToldAtOnce) {
  put(0, 1, 0);
  for (uint32_t id = 0; id < 3; ++id) die(id);
  EXPECT_EQ(trouble().value().facts().index, 10);
}

TEST_F(WorkerWatchTest, OfSeveralDeathsTheOneOfTheOldestBatchIsTold) {
  put(0, 2, 1);
  die(0);
  die(1);  // idle
  put(2, 0, 3);
  die(2);
  const auto error = trouble();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().worker_id, 2);
  EXPECT_EQ(error->facts().index, 3);
}

TEST_F(WorkerWatchTest, AnIdleWorkersDeathHasNoSample) {
  die(0, 7 << 8);
  const auto error = trouble();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().exit_status, 7);
  EXPECT_FALSE(error->facts().index);
}

// It died after its batch was completed: nothing was lost with it but itself.
TEST_F(WorkerWatchTest, ABatchThatIsOverWasNotLost) {
  put(0, 0, 3);
  control().slot(0).header().status = SlotStatus::kReady;
  die(0);
  const auto error = trouble();
  ASSERT_TRUE(error);
  EXPECT_FALSE(error->facts().index);
}

TEST_F(WorkerWatchTest, ABadStartComesBeforeADeath) {
  put(0, 0, 0);
  die(0);
  std::strcpy(worker(2).type_name, "std::domain_error");
  std::strcpy(worker(2).text, "no licence");
  worker(2).state = WorkerState::kInitFailed;
  EXPECT_EQ(trouble().value().facts().type_name, "std::domain_error");
  worker(1).wait_status = EAGAIN;
  worker(1).state = WorkerState::kNoFork;
  EXPECT_THAT(trouble().value().what(), HasSubstr("worker 1 could not be forked"));
}

TEST_F(WorkerWatchTest, TheWorkersAtABatchAreTold) {
  put(0, 0, 1);
  put(1, 1, 2);
  put(2, 0, 3);
  worker(2).pid = 42;
  const std::vector<Busy> busy = busy_workers(control(), in_flight_.front());
  ASSERT_EQ(busy.size(), 2u);
  EXPECT_EQ(busy[0].id, 0u);
  EXPECT_EQ(busy[0].index, 1u);
  EXPECT_EQ(busy[1].id, 2u);
  EXPECT_EQ(busy[1].pid, 42);
  EXPECT_EQ(busy[1].index, 3u);
  EXPECT_TRUE(busy_workers(control(), in_flight_.back()).empty());
}

TEST_F(WorkerWatchTest, AWorkerThatCannotWorkYetIsToldWhateverTheBatch) {
  worker(0).state = WorkerState::kNone;
  worker(1).setup = Setup::kInitFn;
  worker(2).setup = Setup::kOpenInWorker;
  const std::vector<Busy> busy = busy_workers(control(), in_flight_.back());
  ASSERT_EQ(busy.size(), 3u);
  EXPECT_EQ(busy[0].at, Busy::At::kStart);
  EXPECT_EQ(busy[1].at, Busy::At::kInitFn);
  EXPECT_EQ(busy[2].at, Busy::At::kOpenInWorker);
}

class StartWatchTest : public WorkerWatchTest {
 protected:
  // As many looks of a second as it takes, up to 20.
  int looks_until_stuck() {
    for (int looks = 1; looks <= 20; ++looks) {
      if (watch_.is_stuck(control(), std::chrono::seconds(1))) return looks;
    }
    return 0;
  }
  void hang(uint32_t id) {
    worker(id).state = WorkerState::kNone;
    worker(id).pid = 100 + static_cast<int>(id);
  }

  StartWatch watch_{std::chrono::seconds(10), 3};
};

TEST_F(StartWatchTest, WhereAllAreUpNobodyIsStuck) { EXPECT_EQ(looks_until_stuck(), 0); }

TEST_F(StartWatchTest, AWorkerThatDoesNotComeUpIsStuckAfterTheLimit) {
  hang(1);
  EXPECT_EQ(looks_until_stuck(), 10);
}

TEST_F(StartWatchTest, EachProcessThatComesUpBeginsTheTimeAnew) {
  hang(0);
  hang(1);
  for (int look = 0; look < 6; ++look) {
    EXPECT_FALSE(watch_.is_stuck(control(), std::chrono::seconds(1)));
  }
  worker(0).state = WorkerState::kRunning;
  EXPECT_EQ(looks_until_stuck(), 10);
}

// A fork of a large program takes long.
TEST_F(StartWatchTest, AWorkerThatIsNotForkedYetIsNotStuck) {
  worker(1).state = WorkerState::kNone;
  EXPECT_EQ(looks_until_stuck(), 0);
}

TEST_F(StartWatchTest, AfterTheLastTryTheProcessIsNamed) {
  hang(1);
  EXPECT_FALSE(watch_.give_up(control(), 99));
  EXPECT_FALSE(watch_.give_up(control(), 99));
  const auto error = watch_.give_up(control(), 99);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().worker_id, 1);
  EXPECT_EQ(error->facts().pid, 101);
  EXPECT_THAT(error->what(), HasSubstr("worker 1 (pid 101) did not start within 10 s"));
}

TEST_F(StartWatchTest, ASupervisorThatDoesNotComeUpIsNamedItself) {
  for (uint32_t id = 0; id < 3; ++id) worker(id).state = WorkerState::kNone;
  control().supervised() = 0;
  EXPECT_EQ(looks_until_stuck(), 10);
  StartWatch once(std::chrono::seconds(10), 1);
  const auto error = once.give_up(control(), 99);
  ASSERT_TRUE(error);
  EXPECT_FALSE(error->facts().worker_id);
  EXPECT_EQ(error->facts().pid, 99);
}

TEST_F(StartWatchTest, AStartThatSucceedsMakesTheTriesGood) {
  hang(1);
  EXPECT_FALSE(watch_.give_up(control(), 99));
  EXPECT_FALSE(watch_.give_up(control(), 99));
  worker(1).state = WorkerState::kRunning;
  EXPECT_FALSE(watch_.is_stuck(control(), std::chrono::seconds(1)));
  EXPECT_FALSE(watch_.give_up(control(), 99));
}

}  // namespace
}  // namespace stoker::detail
