// SPDX-License-Identifier: BSD-3-Clause
#include "memory/futex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace stoker::detail {
namespace {

using namespace std::chrono_literals;

TEST(FutexTest, DoesNotSleepOnAWordThatHasChanged) {
  std::atomic<uint32_t> word{2};
  futex_wait(word, 1, 24h);  // returns at all: ctest limits the time
  EXPECT_EQ(word, 2u);
}

TEST(FutexTest, WakesUpByItselfInTheEnd) {
  std::atomic<uint32_t> word{0};
  futex_wait(word, 0, 0ns);
  futex_wait(word, 0, 1ns);
  // More than a second: seconds and the rest are told apart.
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < 1001ms) futex_wait(word, 0, 1001ms);
  EXPECT_EQ(word, 0u);
}

TEST(FutexTest, AChangeThatIsToldWakesAllSleepers) {
  std::atomic<uint32_t> word{0};
  std::atomic<int> awake{0};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 4; ++i) {
    sleepers.emplace_back([&] {
      while (word.load() == 0) futex_wait(word, 0, 24h);
      ++awake;
    });
  }
  word = 1;
  futex_wake(word, 4);
  for (auto& sleeper : sleepers) sleeper.join();
  EXPECT_EQ(awake, 4);
}

// Each turn is one sleep and one wake-up; a lost one would never end.
TEST(FutexTest, TwoThreadsTakeTurns) {
  constexpr uint32_t kTurns = 2000;
  std::atomic<uint32_t> word{0};
  uint64_t sum = 0;  // not atomic: the turns order it
  const auto play = [&](uint32_t mine) {
    for (uint32_t turn = mine; turn < kTurns; turn += 2) {
      for (uint32_t seen = word.load(); seen != turn; seen = word.load()) {
        futex_wait(word, seen, 24h);
      }
      sum += turn;
      word.store(turn + 1);
      futex_wake(word, 1);
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(sum, uint64_t{kTurns} * (kTurns - 1) / 2);
}

}  // namespace
}  // namespace stoker::detail
