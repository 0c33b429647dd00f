// SPDX-License-Identifier: BSD-3-Clause

// Promise: a loader that is made while other threads are in the middle of things starts, or says
// what did not; and nothing of it outlives the program, in whatever state it hangs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "datasets.h"
#include "loader/worker_watch.h"
#include "processes.h"

// OpenBLAS, as far as the library can tell: it is called when a child is set up.
extern "C" {
bool set_up_hangs = false;
std::atomic<int>* set_ups_that_end = nullptr;  // in shared memory
void openblas_set_num_threads(int count);
void openblas_set_num_threads(int /*count*/) {
  while (set_up_hangs) pause();
  if (set_ups_that_end != nullptr && set_ups_that_end->fetch_sub(1) > 0) _exit(1);
}
}

namespace stoker {
namespace {

// How many programs to try; `STOKER_TEST_STARTS` says more.
int number_of_starts() {
  const char* given = std::getenv("STOKER_TEST_STARTS");
  return given != nullptr ? std::atoi(given) : 100;
}

void build_a_model() {
  torch::nn::Sequential net(torch::nn::Conv2d(3, 8, 3), torch::nn::BatchNorm2d(8),
                            torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Linear(8 * 36, 10));
  torch::optim::Adam adam(net->parameters());
  net->forward(torch::rand({2, 3, 8, 8})).sum().backward();
  adam.step();
}

void try_programs(int programs) {
  double longest = 0;
  for (int i = 0; i < programs; ++i) {
    const auto began = Clock::now();
    EXPECT_EQ(in_child([&] {
                std::thread model(build_a_model);
                std::this_thread::sleep_for(i % 50 * 100us);
                {
                  DataLoader loader(Counting{16}, {.batch_size = 8, .num_workers = 2});
                  require(epoch_of(loader) == up_to(16), "samples are missing");
                }
                model.join();
              }),
              "")
        << "program " << i;
    longest = std::max(longest, std::chrono::duration<double>(Clock::now() - began).count());
  }
  std::cout << programs << " programs; the longest took " << longest << " s\n";
}

// Each program is a new one: if this test runs alone, what libraries make at their first call is
// not there yet.
TEST(StartTest, LoadersThatAreMadeWhileAnotherThreadBuildsAModelDeliver) {
  try_programs(number_of_starts());
}

// libtorch makes the pool of threads anew that the program had which these were forked from.
TEST(StartTest, SoDoThoseOfProgramsForkedFromOneThatHadALoader) {
  {
    DataLoader loader(Counting{1}, {.num_workers = 1});
    EXPECT_EQ(epoch_of(loader), up_to(1));
  }
  try_programs(number_of_starts());
}

// In bursts: each registration takes memory, and a large program forks slowly.
TEST(StartTest, LoadersThatAreMadeWhileAnotherThreadRegistersExitHandlersDeliver) {
  EXPECT_EQ(in_child([] {
              std::atomic<bool> done{false};
              std::thread registrar([&] {
                while (!done) {
                  for (int i = 0; i < 200; ++i) std::atexit([] {});
                  std::this_thread::sleep_for(20us);
                }
              });
              for (int i = 0; i < 100; ++i) {
                DataLoader loader(Counting{16}, {.batch_size = 8, .num_workers = 2});
                require(epoch_of(loader) == up_to(16), "samples are missing");
              }
              done = true;
              registrar.join();
            }),
            "");
}

[[noreturn]] void wait_for_the_end() {
  for (;;) pause();
}

// Some children hang in the fork itself, as if another thread of the program had held a lock.
struct Hangs {
  std::atomic<int> not_yet{0};  // so many forks go well
  std::atomic<int> left{0};     // then so many do not
};

Hangs& hangs() {
  static const Shared<Hangs> shared;
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    if (shared->not_yet > 0 && shared->not_yet.fetch_sub(1) > 0) return;
    if (shared->left > 0 && shared->left.fetch_sub(1) > 0) wait_for_the_end();
  });
  static_cast<void>(registered);
  return *shared;
}

TEST(StartTest, AStartThatHangsIsMadeAgainAndNothingIsLost) {
  for (const int forks_before : {0, 1, 2}) {
    EXPECT_EQ(in_child([&] {
                detail::start_limit() = 1s;
                hangs().not_yet = forks_before;
                hangs().left = 1;
                DataLoader loader(Counting{64}, {.batch_size = 4, .num_workers = 2});
                require(eventually([] { return hangs().left == 0; }), "nothing hangs");
                require(epoch_of(loader) == up_to(64), "samples are missing");
                require(epoch_of(loader) == up_to(64), "samples of the second epoch are missing");
              }),
              "");
  }
}

TEST(StartTest, ASupervisorThatEndsInItsStartIsForkedAgain) {
  Shared<std::atomic<int>> left;
  for (const int ends : {1, 2}) {
    EXPECT_EQ(in_child([&] {
                *left = ends;
                set_ups_that_end = &*left;
                DataLoader loader(Counting{64}, {.batch_size = 4, .num_workers = 2});
                require(epoch_of(loader) == up_to(64), "samples are missing");
              }),
              "");
    EXPECT_LT(*left, 0);
  }
}

TEST(StartTest, ASupervisorThatEndsInEachStartIsAnError) {
  Shared<std::atomic<int>> left;
  EXPECT_THAT(in_child([&] {
                *left = 1000;
                set_ups_that_end = &*left;
                DataLoader loader(Counting{64}, {.batch_size = 4, .num_workers = 2});
                epoch_of(loader);
              }),
              testing::HasSubstr("the supervisor of the workers"));
  EXPECT_LE(*left, 997);
}

TEST(StartTest, AStartThatHangsAgainAndAgainIsAnErrorThatNamesTheProcess) {
  EXPECT_THAT(in_child([] {
                detail::start_limit() = 300ms;
                hangs().left = 1000;
                DataLoader loader(Counting{64}, {.batch_size = 4, .num_workers = 2});
                epoch_of(loader);
              }),
              testing::ContainsRegex("the supervisor of the workers .pid [0-9]+. did not start "
                                     "within 0.3 s, and was forked 3 times"));
}

TEST(StartTest, ATimeoutNamesWhatHasNotStarted) {
  EXPECT_THAT(in_child([] {
                hangs().not_yet = 1;
                hangs().left = 2;
                DataLoader loader(Counting{64},
                                  {.batch_size = 4, .num_workers = 2, .timeout = 500ms});
                epoch_of(loader);
              }),
              testing::ContainsRegex("within the timeout of 0.5 s; worker 0 .pid [0-9]+. has not "
                                     "started; worker 1 .pid [0-9]+. has not started"));
}

struct Ending {
  const char* name;
  std::function<void(pid_t program)> end;  // in the program
};
void PrintTo(const Ending& ending, std::ostream* out) { *out << ending.name; }

struct State {
  const char* name;
  std::function<void()> hang;
};
void PrintTo(const State& state, std::ostream* out) { *out << state.name; }

void block_all_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

class HangingChildTest : public testing::TestWithParam<std::tuple<Ending, State>> {};

TEST_P(HangingChildTest, IsGoneASecondAfterTheProgram) {
  const auto& [ending, state] = GetParam();
  struct Told {
    std::array<std::atomic<pid_t>, 3> pids{};
    std::atomic<int> hanging{0};
    std::atomic<bool> ready{false};
  };
  Shared<Told> told;
  const pid_t program = fork_child([&] {
    const auto hanging = Made{64, [&, hang = state.hang](size_t index) {
                                if (index >= 2) {  // begin() waits for the first
                                  ++told->hanging;
                                  hang();
                                }
                                return static_cast<int64_t>(index);
                              }};
    DataLoader loader(hanging, {.num_workers = 2});
    const auto it = loader.begin();
    const std::vector<pid_t> all = loader_processes(2).all();
    for (size_t i = 0; i < all.size(); ++i) told->pids[i] = all[i];
    sleep_until([&] { return told->hanging == 2; });
    told->ready = true;
    ending.end(getpid());
    wait_for_the_end();
  });
  EXPECT_TRUE(eventually([&] { return told->ready.load(); }));
  wait_for(program);
  const auto ended = Clock::now();
  const std::vector<pid_t> pids(told->pids.begin(), told->pids.end());
  EXPECT_TRUE(eventually([&] { return !any_alive(pids); }, 1s));
  const std::chrono::duration<double, std::milli> later = Clock::now() - ended;
  std::cout << "the last process was gone " << later.count() << " ms after the program's end\n";
  for (const pid_t pid : pids) {
    if (pid > 0 && is_alive(pid)) kill(pid, SIGKILL);
  }
}

// It has no worker yet, and does not look after its program.
TEST(HangingSupervisorTest, IsGoneASecondAfterTheProgram) {
  for (const bool killed : {true, false}) {
    Shared<std::atomic<pid_t>> supervisor;
    const pid_t program = fork_child([&] {
      set_up_hangs = true;
      DataLoader loader(Counting{64}, {.num_workers = 2});
      std::this_thread::sleep_for(100ms);  // so that it hangs
      *supervisor = children_of(getpid()).at(0);
      if (killed) kill(getpid(), SIGKILL);
      _exit(0);
    });
    wait_for(program);
    ASSERT_NE(*supervisor, 0);
    EXPECT_TRUE(eventually([&] { return !is_alive(*supervisor); }, 1s));
    if (is_alive(*supervisor)) kill(*supervisor, SIGKILL);
  }
}

const auto in_another_thread = [](const std::function<void()>& deed) {
  std::thread(deed).detach();
};

INSTANTIATE_TEST_SUITE_P(
    Endings, HangingChildTest,
    testing::Combine(
        testing::Values(
            Ending{"Exit", [](pid_t) { std::exit(1); }},
            Ending{"ExitAtOnce", [](pid_t) { _exit(1); }},
            Ending{"Abort", [](pid_t) { std::abort(); }},
            Ending{"Kill", [](pid_t program) { kill(program, SIGKILL); }},
            Ending{"Terminate", [](pid_t program) { kill(program, SIGTERM); }},
            Ending{"ExitOfAnotherThread", [](pid_t) { in_another_thread([] { std::exit(1); }); }},
            Ending{"ExitAtOnceOfAnotherThread", [](pid_t) { in_another_thread([] { _exit(1); }); }},
            Ending{"AbortOfAnotherThread", [](pid_t) { in_another_thread([] { std::abort(); }); }}),
        testing::Values(State{"InALock",
                              [] {
                                static std::mutex mutex;
                                mutex.lock();
                                mutex.lock();
                              }},
                        State{"InALoopWithAllSignalsBlocked",
                              [] {
                                block_all_signals();
                                for (std::atomic<int> i = 0;; ++i) {
                                }
                              }})),
    [](const auto& of) {
      return std::string(std::get<0>(of.param).name) + std::get<1>(of.param).name;
    });

}  // namespace
}  // namespace stoker
