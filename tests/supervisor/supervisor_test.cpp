// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/supervisor.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "memory/control.h"
#include "memory/region.h"
#include "processes.h"

namespace stoker::detail {
namespace {

[[noreturn]] void sleep_for_ever() {
  for (;;) pause();
}

// Waits as long as the supervisor lets it.
void wait_for_stop(Control& control) {
  sleep_until([&] { return control.stop().load() != 0; });
}

class SupervisorTest : public testing::Test {
 protected:
  static constexpr uint32_t kWorkers = 3;

  bool all_run() {
    return eventually([this] {
      for (uint32_t id = 0; id < kWorkers; ++id) {
        if (control_.worker(id).state.load() != WorkerState::kRunning) return false;
      }
      return true;
    });
  }
  std::vector<pid_t> workers() {
    std::vector<pid_t> pids;
    for (uint32_t id = 0; id < kWorkers; ++id) pids.push_back(control_.worker(id).pid.load());
    return pids;
  }
  // Until the death of this worker is known.
  bool died(uint32_t id) {
    return eventually([&] {
      return control_.worker(id).state.load() == WorkerState::kDead && control_.troubles() > 0;
    });
  }

  Region region_{64 << 20, 16 << 20};
  Control& control_ = *Control::create(region_.data(), kWorkers, 4);
};

TEST_F(SupervisorTest, ItForksTheWorkersAndEndsThem) {
  Shared<std::array<std::atomic<int>, kWorkers>> ran;
  std::vector<pid_t> pids;
  pid_t supervisor_pid = 0;
  {
    Supervisor supervisor(control_, {}, [&](uint32_t id, bool) {
      ++(*ran)[id];
      wait_for_stop(control_);
    });
    ASSERT_TRUE(all_run());
    EXPECT_TRUE(supervisor.alive());
    supervisor_pid = supervisor.pid();
    pids = workers();
    EXPECT_EQ(process_entry(supervisor_pid).parent, getpid());
    for (const pid_t pid : pids) EXPECT_EQ(process_entry(pid).parent, supervisor_pid);
    EXPECT_TRUE(eventually([&] { return (*ran)[0] == 1 && (*ran)[1] == 1 && (*ran)[2] == 1; }));
  }
  pids.push_back(supervisor_pid);
  EXPECT_FALSE(any_alive(pids));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // nothing left to wait for
}

TEST_F(SupervisorTest, WorkersThatDoNotStopAreKilled) {
  std::vector<pid_t> pids;
  {
    const Supervisor supervisor(control_, {}, [](uint32_t, bool) { sleep_for_ever(); });
    ASSERT_TRUE(all_run());
    pids = workers();
  }
  EXPECT_FALSE(any_alive(pids));
}

TEST_F(SupervisorTest, WorkersGetTimeToFinish) {
  Shared<std::atomic<int>> finished;
  {
    const Supervisor supervisor(control_, {}, [&](uint32_t, bool) {
      wait_for_stop(control_);
      std::this_thread::sleep_for(10ms);
      ++*finished;
    });
    ASSERT_TRUE(all_run());
  }
  EXPECT_EQ(*finished, static_cast<int>(kWorkers));
}

TEST_F(SupervisorTest, ADeathIsReportedWithItsStatus) {
  const Supervisor supervisor(control_, {}, [](uint32_t id, bool) {
    if (id == 0) _exit(3);
    if (id == 1) kill(getpid(), SIGKILL);
    sleep_for_ever();
  });
  ASSERT_TRUE(died(0));
  ASSERT_TRUE(died(1));
  EXPECT_EQ(describe_end(control_.worker(0).wait_status), "exit 3");
  EXPECT_EQ(describe_end(control_.worker(1).wait_status), "signal 9");
  EXPECT_TRUE(eventually([&] { return control_.worker(2).state == WorkerState::kRunning; }));
  EXPECT_TRUE(eventually([&] { return control_.troubles() == 2; }));
  EXPECT_GE(control_.events_word(), 2u);
}

TEST_F(SupervisorTest, AKilledSupervisorTakesTheWorkersAlong) {
  const Supervisor supervisor(control_, {}, [](uint32_t, bool) { sleep_for_ever(); });
  ASSERT_TRUE(all_run());
  kill(supervisor.pid(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return !supervisor.alive(); }));
  EXPECT_TRUE(eventually([&] { return !any_alive(workers()); }));
}

TEST_F(SupervisorTest, AStoppedSupervisorIsEndedToo) {
  std::vector<pid_t> pids;
  {
    const Supervisor supervisor(control_, {}, [](uint32_t, bool) { sleep_for_ever(); });
    ASSERT_TRUE(all_run());
    pids = workers();
    kill(supervisor.pid(), SIGSTOP);
  }
  EXPECT_TRUE(eventually([&] { return !any_alive(pids); }));
}

TEST_F(SupervisorTest, ACopyInAForkedChildEndsNothing) {
  std::optional<Supervisor> supervisor(std::in_place, control_, SupervisorLimits{},
                                       [](uint32_t, bool) { sleep_for_ever(); });
  ASSERT_TRUE(all_run());
  EXPECT_EQ(in_child([&] { supervisor.reset(); }), "");
  EXPECT_TRUE(supervisor->alive());
  EXPECT_TRUE(is_alive(workers().front()));
}

TEST_F(SupervisorTest, ThePrecedingOnesSocketDoesNotKeepItAlive) {
  // The second one's processes hold copies of the first one's descriptors.
  Region region(64 << 20, 16 << 20);
  Control& control = *Control::create(region.data(), 1, 4);
  std::optional<Supervisor> first(std::in_place, control_, SupervisorLimits{},
                                  [](uint32_t, bool) { sleep_for_ever(); });
  ASSERT_TRUE(all_run());
  const Supervisor second(control, {}, [](uint32_t, bool) { sleep_for_ever(); });
  const std::vector<pid_t> pids = workers();
  first.reset();
  EXPECT_FALSE(any_alive(pids));
  EXPECT_TRUE(second.alive());
}

// What the program does with signals is not what its workers do.
TEST_F(SupervisorTest, SignalsOfTheProgramAreIgnoredAndOthersAsInAFreshProcess) {
  struct Seen {
    std::atomic<bool> done{false};
    std::array<char, NSIG> handlers;  // I: ignored, D: default, F: a function
    bool mask_kept;
  };
  Shared<Seen> seen;
  for (const int signal : {SIGALRM, SIGUSR1, SIGSEGV, SIGABRT}) std::signal(signal, [](int) {});
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t mask, old;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR2);
  sigprocmask(SIG_BLOCK, &mask, &old);
  const Supervisor supervisor(control_, {}, [&](uint32_t id, bool) {
    if (id != 0) sleep_for_ever();
    sigset_t now;
    sigprocmask(SIG_BLOCK, nullptr, &now);
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction action {};
      sigaction(signal, nullptr, &action);
      seen->handlers[signal] = action.sa_handler == SIG_IGN   ? 'I'
                               : action.sa_handler == SIG_DFL ? 'D'
                                                              : 'F';
    }
    seen->mask_kept = sigismember(&now, SIGUSR2) == 1 && sigismember(&now, SIGCHLD) == 0;
    seen->done = true;
    sleep_for_ever();
  });
  sigprocmask(SIG_SETMASK, &old, nullptr);
  for (const int signal : {SIGALRM, SIGUSR1, SIGSEGV, SIGABRT, SIGPIPE}) {
    std::signal(signal, SIG_DFL);
  }
  ASSERT_TRUE(eventually([&] { return seen->done.load(); }));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGPIPE}) {
    EXPECT_EQ(seen->handlers[signal], 'I') << strsignal(signal);
  }
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGCHLD}) {
    EXPECT_EQ(seen->handlers[signal], 'D') << strsignal(signal);
  }
  EXPECT_TRUE(seen->mask_kept);
}

// It may come in the middle of the forks.
TEST_F(SupervisorTest, NoHandlerOfTheProgramEverRunsInAChild) {
  static Shared<std::atomic<int>> ran;
  static pid_t program;
  program = getpid();
  EXPECT_EQ(in_child([&] {
              setpgid(0, 0);
              program = getpid();
              std::signal(SIGUSR1, [](int) {
                if (getpid() != program) ++*ran;
              });
              std::atomic<bool> done{false};
              std::thread sender([&] {
                while (!done) {
                  kill(0, SIGUSR1);
                  std::this_thread::sleep_for(50us);
                }
              });
              for (int i = 0; i < 10; ++i) {
                control_.reset();
                const Supervisor supervisor(control_, {},
                                            [&](uint32_t, bool) { wait_for_stop(control_); });
                require(all_run(), "workers are missing");
              }
              done = true;
              sender.join();
            }),
            "");
  EXPECT_EQ(*ran, 0);
}

// Where the program could catch it, in its `main`, and go on as if it were the program.
TEST_F(SupervisorTest, AnExceptionOfAWorkerNeverComesToTheProgramsMain) {
  Shared<std::atomic<int>> in_main;
  const rlimit no_core{0, 0};
  rlimit cores{};
  getrlimit(RLIMIT_CORE, &cores);
  setrlimit(RLIMIT_CORE, &no_core);
  const auto before = std::set_terminate([] { std::exit(0); });  // with the program's handlers
  const pid_t program = getpid();
  try {
    const Supervisor supervisor(control_, {}, [](uint32_t id, bool) {
      if (id == 0) throw 42;
      if (id == 1) throw std::runtime_error("on purpose");
      sleep_for_ever();
    });
    EXPECT_TRUE(died(0));
    EXPECT_TRUE(died(1));
  } catch (...) {
    ++*in_main;
  }
  if (getpid() != program) _exit(0);
  std::set_terminate(before);
  setrlimit(RLIMIT_CORE, &cores);
  EXPECT_EQ(*in_main, 0);
  EXPECT_EQ(describe_end(control_.worker(0).wait_status), "signal 6");
  EXPECT_EQ(describe_end(control_.worker(1).wait_status), "signal 6");
}

// As a wild write of the dataset's does. -1 would be every process of the user's.
TEST_F(SupervisorTest, OnlyItsOwnWorkersAreKilledWhateverTheirRecordsSay) {
  const pid_t bystander = fork_child([] { sleep_for_ever(); });
  // In a group of processes of its own, and without the rights of root, for the worst case.
  const pid_t program = fork_child([&] {
    if (geteuid() == 0 && setuid(65533) != 0) _exit(2);
    bool good = false;
    {
      const Supervisor supervisor(
          control_, {{}, std::chrono::duration<double>(0.2)}, [&](uint32_t id, bool) {
            WorkerRecord& me = control_.worker(id);
            if (id < 2) {
              sleep_until([&] { return me.pid.load() == getpid(); });
              std::this_thread::sleep_for(20ms);  // the supervisor stores it too
              me.pid = id == 0 ? -1 : bystander;
              me.progress.since = Clock::now().time_since_epoch().count();
            }
            sleep_for_ever();
          });
      good = died(0) && died(1) && control_.worker(0).overdue > 0 &&
             control_.worker(2).state == WorkerState::kRunning && is_alive(supervisor.pid());
    }
    _exit(good ? 0 : 1);
  });
  EXPECT_EQ(describe_end(wait_for(program)), "exit 0");
  EXPECT_TRUE(is_alive(bystander));
  kill(bystander, SIGKILL);
  wait_for(bystander);
}

TEST_F(SupervisorTest, AWorkerThatClosesItsDatasetGetsMoreTime) {
  Shared<std::atomic<int>> closed;
  {
    const Supervisor supervisor(control_, {}, [&](uint32_t id, bool) {
      wait_for_stop(control_);
      if (id == 0) sleep_for_ever();  // is killed
      control_.worker(id).state = WorkerState::kClosing;
      std::this_thread::sleep_for(500ms);
      ++*closed;
      _exit(0);
    });
    ASSERT_TRUE(all_run());
  }
  EXPECT_EQ(*closed, 2);
}

TEST_F(SupervisorTest, AProgramThatIgnoresItsChildrenIsServedToo) {
  std::signal(SIGCHLD, SIG_IGN);
  {
    const Supervisor supervisor(control_, {}, [](uint32_t id, bool) {
      if (id == 0) _exit(3);
      sleep_for_ever();
    });
    EXPECT_TRUE(died(0));
    EXPECT_EQ(describe_end(control_.worker(0).wait_status), "exit 3");
  }
  std::signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST_F(SupervisorTest, ItIsNamed) {
  const Supervisor supervisor(control_, {}, [](uint32_t, bool) { sleep_for_ever(); });
  ASSERT_TRUE(all_run());
  EXPECT_EQ(process_entry(supervisor.pid()).name, "stoker superv.");
}

}  // namespace
}  // namespace stoker::detail
