// SPDX-License-Identifier: BSD-3-Clause
#include "loader/worker_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string>

namespace stoker::detail {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// As waitpid tells it: see wait(2)'s macros.
int killed_by(int signal) { return signal; }
int exited_with(int status) { return status << 8; }

class ReportTest : public testing::Test {
 protected:
  ReportTest() { worker_.pid = 4711; }

  WorkerError death(int wait_status, std::optional<size_t> index = std::nullopt) {
    worker_.wait_status = wait_status;
    return report_death(3, worker_, index);
  }

  WorkerRecord worker_{0};
};

TEST_F(ReportTest, AnExceptionOfTheDataset) {
  const WorkerError error = report_failure({3, 4711, 17, "std::out_of_range", "no such file"});
  EXPECT_STREQ(error.what(),
               "stoker: worker 3 (pid 4711) caught std::out_of_range at sample index 17: no such "
               "file");
  EXPECT_EQ(error.facts().worker_id, 3);
  EXPECT_EQ(error.facts().pid, 4711);
  EXPECT_EQ(error.facts().index, 17);
  EXPECT_EQ(error.facts().type_name, "std::out_of_range");
  EXPECT_FALSE(error.facts().signal);
  EXPECT_FALSE(error.facts().exit_status);
}

TEST_F(ReportTest, AnExceptionAboutAWholeBatchHasNoIndex) {
  const WorkerError error = report_failure({3, 4711, std::nullopt, "int", "some text"});
  EXPECT_STREQ(error.what(), "stoker: worker 3 (pid 4711) caught int: some text");
  EXPECT_FALSE(error.facts().index);
}

TEST_F(ReportTest, WhatCollationFindsIsToldAsItIs) {
  const WorkerError error =
      report_failure({3, 4711, std::nullopt, "", "stoker: cannot collate samples 1 and 2"});
  EXPECT_STREQ(error.what(), "stoker: cannot collate samples 1 and 2");
  EXPECT_EQ(error.facts().worker_id, 3);
  EXPECT_FALSE(error.facts().type_name);
}

TEST_F(ReportTest, AnExceptionOfWorkerInitFn) {
  std::strcpy(worker_.type_name, "std::runtime_error");
  std::strcpy(worker_.text, "no licence");
  const WorkerError error = report_init_failure(3, worker_);
  EXPECT_STREQ(error.what(),
               "stoker: worker_init_fn of worker 3 (pid 4711) threw std::runtime_error: no "
               "licence");
  EXPECT_EQ(error.facts().worker_id, 3);
  EXPECT_EQ(error.facts().pid, 4711);
  EXPECT_EQ(error.facts().type_name, "std::runtime_error");
}

TEST_F(ReportTest, ATextThatWasWrittenOverEndsWhereItsPlaceDoes) {
  std::memset(worker_.type_name, 'T', sizeof worker_.type_name);
  std::memset(worker_.text, 't', sizeof worker_.text);
  const WorkerError error = report_init_failure(3, worker_);
  EXPECT_EQ(error.facts().type_name, std::string(sizeof worker_.type_name, 'T'));
}

TEST_F(ReportTest, AWorkerThatWasKilled) {
  const WorkerError error = death(killed_by(SIGKILL), 17);
  EXPECT_STREQ(error.what(),
               "stoker: worker 3 (pid 4711) was killed by signal 9 (Killed) at sample index 17; if "
               "nobody killed it, the machine or container ran out of memory: use fewer workers or "
               "smaller samples; it was not replaced, since max_restarts is 0");
  EXPECT_EQ(error.facts().worker_id, 3);
  EXPECT_EQ(error.facts().pid, 4711);
  EXPECT_EQ(error.facts().signal, SIGKILL);
  EXPECT_EQ(error.facts().index, 17);
  EXPECT_FALSE(error.facts().exit_status);
}

TEST_F(ReportTest, ASignalComesWithItsLikelyCause) {
  EXPECT_THAT(death(killed_by(SIGSEGV)).what(),
              HasSubstr("signal 11 (Segmentation fault); run with num_workers = 0 under a debugger "
                        "to see where; it was"));
  EXPECT_THAT(death(killed_by(SIGABRT)).what(),
              HasSubstr("signal 6 (Aborted); run with num_workers = 0 under a debugger to see "
                        "where; it was"));
  EXPECT_THAT(death(killed_by(SIGBUS)).what(),
              HasSubstr("signal 7 (Bus error); a file it had mapped was cut short, or memory ran "
                        "out; it was"));
  EXPECT_THAT(death(killed_by(SIGTERM)).what(), HasSubstr("signal 15 (Terminated); it was"));
}

TEST_F(ReportTest, AWorkerThatDumpedCoreWasKilledToo) {
  EXPECT_EQ(death(killed_by(SIGSEGV) | 0x80).facts().signal, SIGSEGV);
}

TEST_F(ReportTest, AWorkerThatExited) {
  const WorkerError error = death(exited_with(7), 17);
  EXPECT_STREQ(error.what(),
               "stoker: worker 3 (pid 4711) exited with status 7 at sample index 17; code that a "
               "dataset calls must not end the process; it was not replaced, since max_restarts is "
               "0");
  EXPECT_EQ(error.facts().exit_status, 7);
  EXPECT_FALSE(error.facts().signal);
}

TEST_F(ReportTest, AnEndOutsideOfAnySampleHasNoIndex) {
  const WorkerError error = death(exited_with(0));
  EXPECT_THAT(error.what(), Not(HasSubstr("index")));
  EXPECT_EQ(error.facts().exit_status, 0);
  EXPECT_FALSE(error.facts().index);
}

TEST_F(ReportTest, AWorkerThatTookTooLong) {
  worker_.overdue = 2.5;
  const WorkerError error = death(killed_by(SIGKILL), 17);
  EXPECT_STREQ(error.what(),
               "stoker: worker 3 (pid 4711) took longer than the sample_timeout of 2.5 s at sample "
               "index 17 and was killed; it was not replaced, since max_restarts is 0");
  EXPECT_EQ(error.facts().worker_id, 3);
  EXPECT_EQ(error.facts().pid, 4711);
  EXPECT_EQ(error.facts().signal, SIGKILL);
  EXPECT_EQ(error.facts().index, 17);
  EXPECT_FALSE(error.facts().exit_status);
}

TEST_F(ReportTest, AWorkerThatTookTooLongIsToldSoEvenIfItExitedJustThen) {
  worker_.overdue = 30;
  const WorkerError error = death(exited_with(0));
  EXPECT_STREQ(error.what(),
               "stoker: worker 3 (pid 4711) took longer than the sample_timeout of 30 s and was "
               "killed; it was not replaced, since max_restarts is 0");
  EXPECT_EQ(error.facts().signal, SIGKILL);
  EXPECT_FALSE(error.facts().index);
  EXPECT_FALSE(error.facts().exit_status);
}

// The bytes are those of a control group of 8 GB of which 12 MB are left.
TEST_F(ReportTest, AKillComesWithWhatTheKernelToldOfMemory) {
  worker_.memory_limit = uint64_t{8} << 30;
  worker_.memory_available = 12 << 20;
  worker_.oom_killer = OomKiller::kAtWork;
  EXPECT_THAT(death(killed_by(SIGKILL)).what(),
              HasSubstr("(Killed); the kernel's OOM killer was at work (memory limit 8 GB, now "
                        "available 12 MB): use fewer workers or smaller samples; it was"));
  worker_.memory_limit = UINT64_MAX;
  EXPECT_THAT(death(killed_by(SIGKILL)).what(),
              HasSubstr("was at work (no memory limit, now available 12 MB): use"));
  worker_.oom_killer = OomKiller::kIdle;
  EXPECT_THAT(death(killed_by(SIGKILL)).what(),
              HasSubstr("(Killed); nothing says that memory ran out (the OOM killer was idle, 12 "
                        "MB is available): somebody sent the signal; it was"));
  EXPECT_THAT(death(killed_by(SIGTERM)).what(), Not(HasSubstr("memory")));
}

TEST_F(ReportTest, AnExceptionOfOpenInWorker) {
  std::strcpy(worker_.type_name, "std::system_error");
  std::strcpy(worker_.text, "no such file");
  worker_.setup = Setup::kOpenInWorker;
  EXPECT_STREQ(report_init_failure(3, worker_).what(),
               "stoker: open_in_worker of worker 3 (pid 4711) threw std::system_error: no such "
               "file");
}

// However the worker ended.
TEST_F(ReportTest, ADeathTellsWhyTheWorkerWasNotReplaced) {
  const auto expect_end = [this](const std::string& end) {
    worker_.overdue = 0;
    EXPECT_THAT(death(killed_by(SIGTERM), 17).what(), EndsWith("at sample index 17" + end));
    EXPECT_THAT(death(killed_by(SIGKILL), 17).what(), EndsWith("or smaller samples" + end));
    EXPECT_THAT(death(exited_with(7)).what(), EndsWith("must not end the process" + end));
    worker_.overdue = 1;
    EXPECT_THAT(death(killed_by(SIGKILL)).what(), EndsWith("and was killed" + end));
  };
  worker_.final = Final::kNoRestarts;
  expect_end("; it was not replaced, since max_restarts is 0");
  worker_.final = Final::kRestartsSpent;
  expect_end("; it was not replaced, since max_restarts others were in this epoch already");
  worker_.final = Final::kKilledTwice;
  expect_end("; it was not replaced, since the same sample had ended a worker before");
  worker_.final = Final::kBatchKilledTwice;
  expect_end("; it was not replaced, since the same batch had ended a worker before");
  worker_.final = Final::kCondemned;
  expect_end("; the same sample had ended a worker before");
}

TEST_F(ReportTest, AWorkerThatCouldNotBeForked) {
  worker_.wait_status = EAGAIN;
  const WorkerError error = report_no_fork(3, worker_);
  EXPECT_STREQ(error.what(),
               "stoker: worker 3 could not be forked: Resource temporarily unavailable; use fewer "
               "workers, or raise the limit of processes or memory");
  EXPECT_EQ(error.facts().worker_id, 3);
  EXPECT_FALSE(error.facts().pid);
}

TEST_F(ReportTest, ASupervisorThatIsGone) {
  const WorkerError error = report_lost_supervisor(99);
  EXPECT_STREQ(
      error.what(),
      "stoker: the supervisor of the workers (pid 99) is gone, and the workers with it; was "
      "it killed?");
  EXPECT_EQ(error.facts().pid, 99);
  EXPECT_FALSE(error.facts().worker_id);
}

TEST_F(ReportTest, NoMemoryForOneMoreBatch) {
  const std::runtime_error error = report_no_memory(3, 96 << 20, 256 << 20);
  EXPECT_STREQ(error.what(),
               "stoker: no memory for one more batch of 96 MB: shared_memory_limit is 256 MB, and "
               "the program keeps 3 batches; copy (clone) what must be kept, use a smaller "
               "batch_size, or raise shared_memory_limit (and `ulimit -v`)");
}

TEST_F(ReportTest, ATimeoutTellsWhoIsAtWhat) {
  const WorkerError error = report_timeout(2.5, {{3, 4711, 17}, {5, 4713, 18}});
  EXPECT_STREQ(error.what(),
               "stoker: no batch within the timeout of 2.5 s; worker 3 (pid 4711) is at sample "
               "index 17; worker 5 (pid 4713) is at sample index 18");
  EXPECT_EQ(error.facts().worker_id, 3);
  EXPECT_EQ(error.facts().pid, 4711);
  EXPECT_EQ(error.facts().index, 17);
}

TEST_F(ReportTest, ATimeoutTellsWhoCannotWorkYet) {
  using At = Busy::At;
  const WorkerError error = report_timeout(1, {{0, 0, 0, At::kStart},
                                               {1, 7, 0, At::kStart},
                                               {2, 8, 0, At::kInitFn},
                                               {3, 9, 0, At::kOpenInWorker}});
  EXPECT_STREQ(error.what(),
               "stoker: no batch within the timeout of 1 s; worker 0 has not started; worker 1 "
               "(pid 7) has not started; worker 2 (pid 8) is in worker_init_fn; worker 3 (pid 9) "
               "is in open_in_worker");
  EXPECT_FALSE(error.facts().pid);
  EXPECT_FALSE(error.facts().index);
}

TEST_F(ReportTest, AProcessThatDoesNotStart) {
  const std::string rest =
      " did not start within 10 s, and was forked 3 times; another thread of the program probably "
      "holds a lock whenever it forks: make loaders before threads are started";
  EXPECT_EQ(report_not_started(1, 7, 10, 3).what(), "stoker: worker 1 (pid 7)" + rest);
  EXPECT_EQ(report_not_started(std::nullopt, 7, 10, 3).what(),
            "stoker: the supervisor of the workers (pid 7)" + rest);
}

TEST_F(ReportTest, ATimeoutWhileNobodyIsAtTheBatch) {
  const WorkerError error = report_timeout(0.25, {});
  EXPECT_STREQ(error.what(), "stoker: no batch within the timeout of 0.25 s");
  EXPECT_FALSE(error.facts().worker_id);
  EXPECT_FALSE(error.facts().index);
}

}  // namespace
}  // namespace stoker::detail
