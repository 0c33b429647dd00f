// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/sample_clock.h"

#include <gtest/gtest.h>

namespace stoker::detail {
namespace {

using namespace std::chrono_literals;

// Of a limit of 8 s, which is looked at each second. The steady clock begins anywhere.
class SampleClockTest : public testing::Test {
 protected:
  static constexpr auto kStart = 5000s;

  // Looks as the supervisor does, from there on.
  void look_until(std::chrono::seconds end) {
    for (; now_ < kStart + end; now_ += 1s) clock_.look(now_);
    clock_.look(now_);
  }
  bool is_overdue(std::chrono::nanoseconds since, uint32_t worker = 0) {
    return clock_.is_overdue(worker, kStart + since);
  }

  SampleClock clock_{2, 8s};
  std::chrono::nanoseconds now_ = kStart;
};

TEST_F(SampleClockTest, LooksEightTimesInALimit) {
  EXPECT_EQ(clock_.interval(), 1000ms);
  EXPECT_EQ(SampleClock(1, 1ms).interval(), 1ms);
}

TEST_F(SampleClockTest, ASampleIsOverdueOnceTheLimitIsOver) {
  for (int i = 0; i <= 8; ++i) {
    look_until(i * 1s);
    EXPECT_FALSE(is_overdue(0s)) << i;
  }
  look_until(9s);
  EXPECT_TRUE(is_overdue(0s));
}

// It began between two looks: what has passed since counts.
TEST_F(SampleClockTest, ASampleIsNotGivenTheTimeBeforeItWasSeen) {
  look_until(3s);
  EXPECT_FALSE(is_overdue(2100ms));
  look_until(10s);
  EXPECT_FALSE(is_overdue(2100ms));
  look_until(11s);
  EXPECT_TRUE(is_overdue(2100ms));
}

TEST_F(SampleClockTest, EachSampleHasItsOwnTime) {
  for (int i = 1; i <= 20; ++i) {
    look_until(i * 1s);
    EXPECT_FALSE(is_overdue(i / 5 * 5s));
    EXPECT_EQ(is_overdue(1s, 1), i > 9);
  }
}

TEST_F(SampleClockTest, WhileTheSupervisorWasStoppedNoTimePassed) {
  look_until(0s);
  EXPECT_FALSE(is_overdue(0s));
  look_until(4s);
  now_ += 1h;
  clock_.look(now_);
  EXPECT_FALSE(is_overdue(0s));
  now_ += 1s;
  clock_.look(now_);
  EXPECT_FALSE(is_overdue(0s));
  now_ += 2s;
  clock_.look(now_);
  EXPECT_TRUE(is_overdue(0s));
}

// Begun just before the stop, and seen for the first time after it.
TEST_F(SampleClockTest, ASampleThatWasBegunBeforeAStopIsNoException) {
  look_until(4s);
  now_ += 1h;
  clock_.look(now_);
  EXPECT_FALSE(is_overdue(4500ms));
  EXPECT_FALSE(is_overdue(4500ms + 1h, 1));
  for (int i = 0; i < 7; ++i) clock_.look(now_ += 1s);
  EXPECT_TRUE(is_overdue(4500ms));
  EXPECT_FALSE(is_overdue(4500ms + 1h, 1));
}

// A worker may begin a sample between the look and the question.
TEST_F(SampleClockTest, ASampleOfTheFutureIsNotOverdue) {
  look_until(4s);
  EXPECT_FALSE(is_overdue(6s));
}

}  // namespace
}  // namespace stoker::detail
