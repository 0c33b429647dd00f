// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "control.h"
#include "processes.h"
#include "region.h"

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
TEST_F(SupervisorTest, SignalsAreAsInAFreshProcess) {
  struct Seen {
    std::atomic<bool> done{false};
    bool handler_kept, int_ignored, pipe_ignored, mask_kept;
  };
  Shared<Seen> seen;
  const auto handler_of = [](int signal) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    return action.sa_handler;
  };
  std::signal(SIGUSR1, [](int) {});
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t mask, old;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR2);
  sigprocmask(SIG_BLOCK, &mask, &old);
  const Supervisor supervisor(control_, {}, [&](uint32_t id, bool) {
    if (id != 0) sleep_for_ever();
    sigset_t now;
    sigprocmask(SIG_BLOCK, nullptr, &now);
    seen->handler_kept = handler_of(SIGUSR1) != SIG_DFL;
    seen->int_ignored = handler_of(SIGINT) == SIG_IGN;
    seen->pipe_ignored = handler_of(SIGPIPE) == SIG_IGN;
    seen->mask_kept = sigismember(&now, SIGUSR2) == 1 && sigismember(&now, SIGCHLD) == 0;
    seen->done = true;
    sleep_for_ever();
  });
  sigprocmask(SIG_SETMASK, &old, nullptr);
  std::signal(SIGUSR1, SIG_DFL);
  std::signal(SIGPIPE, SIG_DFL);
  ASSERT_TRUE(eventually([&] { return seen->done.load(); }));
  EXPECT_FALSE(seen->handler_kept);
  EXPECT_TRUE(seen->int_ignored);
  EXPECT_TRUE(seen->pipe_ignored);
  EXPECT_TRUE(seen->mask_kept);
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
