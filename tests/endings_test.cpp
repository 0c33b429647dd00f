// SPDX-License-Identifier: BSD-3-Clause

// Promise: no orphan, no zombie, no output lost or printed twice, however the program ends; and a
// program's own children are its own affair.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <sys/resource.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "datasets.h"
#include "processes.h"

namespace stoker {
namespace {

// What a program tells of itself, for those that look on.
struct Told {
  std::array<std::atomic<pid_t>, 4> processes{};  // the supervisor and the workers
  std::atomic<bool> stuck{false};                 // a worker is in the middle of a sample
  std::atomic<bool> ready{false};

  std::vector<pid_t> pids() const { return {processes.begin(), processes.end()}; }
};

// One worker is in the middle of a sample that never ends, the two others have nothing to do.
auto with_stuck_sample(const Shared<Told>& told) {
  return Made{6, [told](size_t index) {
                if (index == 3) {
                  told->stuck = true;
                  for (;;) pause();
                }
                return static_cast<int64_t>(index);
              }};
}

// A program in the middle of an epoch; `end` is how it ends.
void run_program(const Shared<Told>& told, const std::function<void()>& end) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  DataLoader loader(with_stuck_sample(told), {.num_workers = 3, .prefetch_factor = 2});
  auto it = loader.begin();
  const std::vector<pid_t> all = loader_processes(3).all();
  if (all.size() != told->processes.size()) _exit(99);
  for (size_t i = 0; i < all.size(); ++i) told->processes[i] = all[i];
  sleep_until([&] { return told->stuck.load(); });
  told->ready = true;
  end();
}

struct Ending {
  const char* name;
  std::function<void()> end;                        // what the program does
  std::function<void(pid_t, const Told&)> is_done;  // what is done to it
  std::string how;                                  // it ends
};
// Or else gtest prints its bytes, of which some are never written.
void PrintTo(const Ending& ending, std::ostream* out) { *out << ending.name; }

const auto wait_for_it = [] {
  for (;;) pause();
};
const auto nothing = [](pid_t, const Told&) {};

auto send(int signal) {
  return [signal](pid_t program, const Told&) { kill(program, signal); };
}

class EndingTest : public testing::TestWithParam<Ending> {};

// The program is the first process of its group, as one that a shell starts.
TEST_P(EndingTest, NothingIsLeftOfTheProgram) {
  const Ending& ending = GetParam();
  Shared<Told> told;
  const pid_t program = fork_child([&] {
    setpgid(0, 0);
    try {
      run_program(told, ending.end);
    } catch (const std::exception&) {
      std::exit(9);
    }
  });
  EXPECT_TRUE(eventually([&] { return told->ready.load(); })) << "it did not come that far";
  ending.is_done(program, *told);
  EXPECT_EQ(describe_end(wait_for(program)), ending.how);
  const auto ended = Clock::now();
  EXPECT_TRUE(eventually([&] { return !any_alive(told->pids()); }, 1s))
      << "a process outlived the program";
  const std::chrono::duration<double, std::milli> later = Clock::now() - ended;
  std::cout << "the last process was gone " << later.count() << " ms after the program's end\n";
  RecordProperty("last_gone_ms", std::to_string(later.count()));
  for (const pid_t pid : told->pids()) {
    if (pid > 0 && is_alive(pid)) kill(pid, SIGKILL);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Endings, EndingTest,
    testing::Values(Ending{"Return", [] {}, nothing, "exit 0"},
                    Ending{"Exit", [] { std::exit(4); }, nothing, "exit 4"},
                    Ending{"ExitAtOnce", [] { _exit(5); }, nothing, "exit 5"},
                    Ending{"QuickExit", [] { std::quick_exit(6); }, nothing, "exit 6"},
                    Ending{"Abort", [] { std::abort(); }, nothing, "signal 6"},
                    Ending{
                        "ExceptionNobodyCatches",
                        [] { std::thread([] { throw std::runtime_error("on purpose"); }).join(); },
                        nothing, "signal 6"},
                    Ending{"ExceptionThroughTheLoop",
                           [] { throw std::runtime_error("on purpose"); }, nothing, "exit 9"},
                    Ending{"Terminate", wait_for_it, send(SIGTERM), "signal 15"},
                    Ending{"TerminateWithAHandlerThatExits",
                           [] {
                             std::signal(SIGTERM, [](int) { std::_Exit(3); });
                             kill(getpid(), SIGTERM);
                           },
                           nothing, "exit 3"},
                    Ending{"InterruptOfTheWholeGroup", wait_for_it,
                           [](pid_t program, const Told&) { kill(-program, SIGINT); }, "signal 2"},
                    Ending{"HangUpOfTheWholeGroup", wait_for_it,
                           [](pid_t program, const Told&) { kill(-program, SIGHUP); }, "signal 1"},
                    Ending{"Kill", wait_for_it, send(SIGKILL), "signal 9"},
                    Ending{"KillOfTheSupervisorThenOfTheProgram", wait_for_it,
                           [](pid_t program, const Told& told) {
                             kill(told.processes[0], SIGKILL);
                             EXPECT_TRUE(eventually([&] { return !any_alive(told.pids()); }, 1s));
                             kill(program, SIGKILL);
                           },
                           "signal 9"},
                    Ending{"KillOfBothAtOnce", wait_for_it,
                           [](pid_t program, const Told& told) {
                             kill(program, SIGSTOP);  // so that it cannot answer
                             kill(told.processes[0], SIGKILL);
                             kill(program, SIGKILL);
                           },
                           "signal 9"},
                    Ending{"KillOfAStoppedProgram", wait_for_it,
                           [](pid_t program, const Told&) {
                             kill(program, SIGSTOP);
                             kill(program, SIGKILL);
                           },
                           "signal 9"}),
    [](const auto& of) { return std::string(of.param.name); });

// As a debugger or a batch system does, to all processes or to the program alone.
TEST(EndingsTest, StoppingAndContinuingIsSurvived) {
  for (const bool all : {true, false}) {
    Shared<std::atomic<int>> fetched;
    const pid_t program = fork_child([&] {
      setpgid(0, 0);
      const auto slow = Made{100, [=](size_t index) {
                               ++*fetched;
                               std::this_thread::sleep_for(3ms);
                               return static_cast<int64_t>(index);
                             }};
      DataLoader loader(slow, {.batch_size = 2, .num_workers = 2, .timeout = 20s});
      _exit(epoch_of(loader) == up_to(100) ? 0 : 1);
    });
    EXPECT_TRUE(eventually([&] { return *fetched > 10; }));
    kill(all ? -program : program, SIGSTOP);
    std::this_thread::sleep_for(300ms);
    kill(all ? -program : program, SIGCONT);
    EXPECT_EQ(describe_end(wait_for(program)), "exit 0");
    EXPECT_EQ(*fetched, 100);
  }
}

TEST(EndingsTest, NothingIsLeftOfALoaderThatIsGone) {
  for (const bool persistent : {true, false}) {
    std::vector<pid_t> processes;
    {
      DataLoader loader(Counting{50}, {.num_workers = 3, .persistent_workers = persistent});
      auto it = loader.begin();
      processes = loader_processes(3).all();
    }
    EXPECT_EQ(processes.size(), 4u);
    EXPECT_FALSE(any_alive(processes));
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child was left";
  }
}

TEST(EndingsTest, WithWorkersThatDoNotPersistNoneOutlivesTheEpoch) {
  DataLoader loader(Counting{10}, {.num_workers = 2, .persistent_workers = false});
  EXPECT_EQ(epoch_of(loader), up_to(10));
  EXPECT_TRUE(children_of(getpid()).empty());
}

TEST(EndingsTest, TheProgramsOwnChildrenAreItsOwn) {
  Shared<std::atomic<bool>> go;
  const pid_t before = fork_child([&] {
    sleep_until([&] { return go->load(); });
    _exit(7);
  });
  pid_t between = 0;
  {
    DataLoader loader(Counting{50}, {.num_workers = 2});
    between = fork_child([&] {
      sleep_until([&] { return go->load(); });
      _exit(8);
    });
    EXPECT_EQ(epoch_of(loader), up_to(50));
  }
  EXPECT_TRUE(is_alive(before) && is_alive(between));
  *go = true;
  std::vector<std::string> ends;
  for (int status = 0; wait(&status) > 0;) ends.push_back(describe_end(status));
  EXPECT_THAT(ends, testing::UnorderedElementsAre("exit 7", "exit 8"));
}

TEST(EndingsTest, ACopyThatAForkedChildDestroysDisturbsNothing) {
  std::optional<DataLoader<Counting>> loader(std::in_place, Counting{50},
                                             DataLoaderOptions{.batch_size = 5, .num_workers = 2});
  std::optional it(loader->begin());
  EXPECT_EQ(in_child([&] {
              it.reset();
              loader.reset();
            }),
            "");
  for (int64_t batch = 0; batch < 10; ++batch, ++*it) {
    EXPECT_EQ(numbers(**it).front(), 5 * batch);
  }
  EXPECT_EQ(epoch_of(*loader), up_to(50));
}

// Leaves by exit, which runs destructors of what is static.
TEST(EndingsTest, ACopyInAForkedChildThatExitsDisturbsNothing) {
  static std::optional<DataLoader<Counting>> loader;
  loader.emplace(Counting{50}, DataLoaderOptions{.num_workers = 2});
  const pid_t child = fork_child([] { std::exit(0); });
  EXPECT_EQ(describe_end(wait_for(child)), "exit 0");
  EXPECT_EQ(epoch_of(*loader), up_to(50));
  loader.reset();
}

// Sends this process's output into a file; for a child. Returns what to read it from.
class OutputFile {
 public:
  void take_stdout() { dup2(fileno(file_.get()), STDOUT_FILENO); }
  std::vector<std::string> lines() {
    std::rewind(file_.get());
    std::vector<std::string> all;
    for (std::array<char, 256> line; std::fgets(line.data(), line.size(), file_.get());) {
      all.emplace_back(line.data());
    }
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  std::unique_ptr<FILE, int (*)(FILE*)> file_{std::tmpfile(), std::fclose};
};

TEST(EndingsTest, OutputIsNeitherLostNorPrintedTwice) {
  OutputFile output;
  EXPECT_EQ(in_child([&] {
              output.take_stdout();
              std::printf("before, printf\n");
              std::cout << "before, cout\n";
              const auto talking = Made{3, [](size_t index) {
                                          std::printf("sample %zu, printf\n", index);
                                          std::cout << "sample " << index << ", cout\n";
                                          return static_cast<int64_t>(index);
                                        }};
              {
                DataLoader loader(talking, {.num_workers = 2});
                std::printf("between, printf\n");
                require(epoch_of(loader) == up_to(3), "samples are missing");
              }
              std::cout << "after, cout\n";
            }),
            "");
  EXPECT_THAT(output.lines(),
              testing::ElementsAre("after, cout\n", "before, cout\n", "before, printf\n",
                                   "between, printf\n", "sample 0, cout\n", "sample 0, printf\n",
                                   "sample 1, cout\n", "sample 1, printf\n", "sample 2, cout\n",
                                   "sample 2, printf\n"));
}

}  // namespace
}  // namespace stoker
