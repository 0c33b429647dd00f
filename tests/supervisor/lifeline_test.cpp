// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/lifeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <optional>

#include "processes.h"

namespace stoker::detail {
namespace {

// With all signals blocked.
[[noreturn]] void loop_for_ever() {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  for (std::atomic<int> i = 0;; ++i) {
  }
}

TEST(LifelineTest, LettingGoKillsAChildWhateverItDoes) {
  std::optional<Lifeline> lifeline(std::in_place);
  Shared<std::atomic<bool>> held;
  const pid_t child = fork_child([&] {
    lifeline->hold();
    *held = true;
    loop_for_ever();
  });
  lifeline->keep_writing_end();
  EXPECT_TRUE(eventually([&] { return held->load(); }));
  EXPECT_TRUE(is_alive(child));
  lifeline.reset();
  EXPECT_EQ(describe_end(wait_for(child)), "signal 9");
}

TEST(LifelineTest, AChildOfTheChildHoldsOnForItself) {
  std::optional<Lifeline> lifeline(std::in_place);
  Shared<std::atomic<pid_t>> grandchild;
  const pid_t child = fork_child([&] {
    lifeline->hold();
    const pid_t pid = fork_child([&] {
      lifeline->hold();
      *grandchild = getpid();
      loop_for_ever();
    });
    wait_for(pid);
  });
  lifeline->keep_writing_end();
  EXPECT_TRUE(eventually([&] { return *grandchild != 0; }));
  kill(child, SIGKILL);
  wait_for(child);
  EXPECT_TRUE(is_alive(*grandchild));
  lifeline.reset();
  EXPECT_TRUE(eventually([&] { return !is_alive(*grandchild); }));
}

TEST(LifelineTest, AChildWhoseProgramIsGoneAlreadyEndsAtOnce) {
  Shared<std::atomic<pid_t>> child;
  Shared<std::atomic<bool>> outlived;
  const pid_t program = fork_child([&] {
    Lifeline lifeline;
    *child = fork_child([&, parent = getpid()] {
      sleep_until([&] { return getppid() != parent; });
      lifeline.hold();
      *outlived = true;
    });
  });
  wait_for(program);
  EXPECT_TRUE(eventually([&] { return !is_alive(*child); }));
  EXPECT_FALSE(*outlived);
}

}  // namespace
}  // namespace stoker::detail
