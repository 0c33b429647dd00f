// SPDX-License-Identifier: BSD-3-Clause

// The program around a loader: it forks, waits for any child, ignores SIGCHLD, is stopped. Neither
// disturbs the other. See endings_test.cpp for its ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <stoker/dataloader.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "datasets.h"
#include "processes.h"

namespace stoker {
namespace {

using Loader = DataLoader<Counting>;

constexpr const char* kRefused = "stoker: a loader can only be used in the process that made it";

TEST(ProgramTest, AForkedChildIsRefusedAndDisturbsNothing) {
  for (const int64_t workers : {0, 2}) {
    std::optional<Loader> loader(std::in_place, Counting{50},
                                 DataLoaderOptions{.batch_size = 5, .num_workers = workers});
    std::optional it(loader->begin());
    at::Tensor kept = **it;
    EXPECT_EQ(in_child([&] {
                require(numbers(kept) == up_to(5), "the child cannot read a batch");
                require(text_of<std::logic_error>([&] { ++*it; }) == kRefused,
                        "++ was not refused");
                require(text_of<std::logic_error>([&] { loader->begin(); }) == kRefused,
                        "begin was not refused");
                kept = at::Tensor();
                it.reset();
                loader.reset();
              }),
              "");
    EXPECT_EQ(numbers(kept), up_to(5));
    for (int64_t batch = 0; batch < 10; ++batch, ++*it) {
      EXPECT_EQ(numbers(**it).front(), 5 * batch);
    }
    EXPECT_EQ(epoch_of(*loader), up_to(50));
  }
}

TEST(ProgramTest, AChildThatOutlivesTheProgramKeepsNoWorkerAlive) {
  Shared<std::array<std::atomic<pid_t>, 4>> pids;
  const pid_t program = fork_child([&] {
    Loader loader(Counting{50}, {.num_workers = 2});
    const std::vector<pid_t> all = loader_processes(2).all();
    for (size_t i = 0; i < all.size(); ++i) (*pids)[i] = all[i];
    (*pids)[3] = fork_child([] {
      for (;;) pause();
    });
    for (;;) pause();
  });
  EXPECT_TRUE(eventually([&] { return (*pids)[3] != 0; }));
  kill(program, SIGKILL);
  wait_for(program);
  EXPECT_TRUE(eventually([&] { return !any_alive({(*pids)[0], (*pids)[1], (*pids)[2]}); }));
  EXPECT_TRUE(is_alive((*pids)[3]));
  kill((*pids)[3], SIGKILL);
}

// Such a thread sees the supervisor as a child like any other.
TEST(ProgramTest, AThreadThatWaitsForAnyChildDoesNoHarm) {
  EXPECT_EQ(in_child([] {
              std::atomic<bool> stop{false};
              std::thread waiting([&] {
                while (!stop) {
                  if (waitpid(-1, nullptr, 0) < 0) std::this_thread::sleep_for(1ms);
                }
              });
              for (int i = 0; i < 5; ++i) {
                Loader loader(Counting{50}, {.batch_size = 5, .num_workers = 2});
                require(epoch_of(loader) == up_to(50), "samples are missing");
              }
              stop = true;
              waiting.join();
            }),
            "");
}

TEST(ProgramTest, ASupervisorThatTheProgramReapedIsTold) {
  Loader loader(Counting{1000}, {.num_workers = 2});
  auto it = loader.begin();
  const pid_t supervisor = loader_processes(2).supervisors.at(0);
  kill(supervisor, SIGKILL);
  int status = 0;
  EXPECT_EQ(waitpid(-1, &status, 0), supervisor);
  EXPECT_EQ(describe_end(status), "signal 9");
  EXPECT_THROW(for (;;)++ it, WorkerError);
  EXPECT_EQ(epoch_of(loader), up_to(1000));
}

// Forks a child with this number; -1 where that is not allowed.
pid_t fork_with_number(pid_t number) {
  clone_args args{};
  args.exit_signal = SIGCHLD;
  args.set_tid = reinterpret_cast<uint64_t>(&number);
  args.set_tid_size = 1;
  const long pid = syscall(SYS_clone3, &args, sizeof args);
  if (pid == 0) {
    for (;;) pause();
  }
  return static_cast<pid_t>(pid);
}

TEST(ProgramTest, AnotherProcessWithTheSupervisorsNumberIsLeftAlone) {
  std::optional<Loader> loader(std::in_place, Counting{50}, DataLoaderOptions{.num_workers = 2});
  const pid_t supervisor = loader_processes(2).supervisors.at(0);
  kill(supervisor, SIGKILL);
  wait_for(supervisor);
  const pid_t other = fork_with_number(supervisor);
  if (other < 0) GTEST_SKIP() << "a process's number cannot be chosen here";
  EXPECT_EQ(other, supervisor);
  loader.reset();
  EXPECT_TRUE(is_alive(other));
  kill(other, SIGTERM);
  EXPECT_EQ(describe_end(wait_for(other)), "signal 15");
}

TEST(ProgramTest, AProgramThatIgnoresItsChildrenIsServed) {
  std::signal(SIGCHLD, SIG_IGN);
  {
    Shared<std::atomic<bool>> died;
    DataLoader loader(Made{64,
                           [=](size_t index) {
                             if (index == 17 && !died->exchange(true)) kill(getpid(), SIGKILL);
                             return static_cast<int64_t>(index);
                           }},
                      {.batch_size = 8, .num_workers = 2, .max_restarts = 1});
    EXPECT_EQ(epoch_of(loader), up_to(64));
    EXPECT_EQ(loader.stats().restarts, 1);
  }
  std::signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

// Twice as long as a sample may take. Nobody is killed for the time in which nobody ran, also if
// the supervisor is the first to go on.
TEST(ProgramTest, ASampleTimeoutDoesNotCountTimeInWhichTheProgramWasStopped) {
  Shared<std::atomic<int>> fetched;
  Shared<std::atomic<pid_t>> supervisor;
  const pid_t program = fork_child([&] {
    setpgid(0, 0);
    const auto slow = Made{60, [=](size_t index) {
                             *supervisor = getppid();
                             ++*fetched;
                             std::this_thread::sleep_for(20ms);
                             return static_cast<int64_t>(index);
                           }};
    DataLoader loader(slow, {.batch_size = 2, .num_workers = 2, .sample_timeout = 2s});
    _exit(epoch_of(loader) == up_to(60) ? 0 : 1);
  });
  EXPECT_TRUE(eventually([&] { return *fetched > 10; }, 30s));
  kill(-program, SIGSTOP);
  std::this_thread::sleep_for(4s);
  kill(*supervisor, SIGCONT);
  std::this_thread::sleep_for(400ms);  // it has looked
  kill(-program, SIGCONT);
  EXPECT_EQ(describe_end(wait_for(program)), "exit 0");
  EXPECT_EQ(*fetched, 60);
}

}  // namespace
}  // namespace stoker
