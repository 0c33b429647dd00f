// SPDX-License-Identifier: BSD-3-Clause
#include "loader/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "memory/futex.h"
#include "slot_memory.h"

namespace stoker::detail {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kSlots = 16;

class ArrivalsTest : public testing::Test {
 protected:
  explicit ArrivalsTest(bool in_order = true, InFlightLimit limit = {4, kSlots})
      : control_(memory_.control()), arrivals_(control_, in_order, limit) {}

  // Each batch has one sample, and a slot of its own as long as no more than kSlots are in flight.
  InFlight publish() {
    const uint32_t sequence = control_.published();
    const InFlight batch{sequence, sequence % kSlots};
    control_.slot(batch.slot).publish(std::vector<int64_t>{0}, sequence, {});
    control_.publish(batch.slot);
    arrivals_.add(batch);
    return batch;
  }
  // True if main is to be woken.
  bool complete(const InFlight& batch) {
    return control_.complete(control_.slot(batch.slot), batch.sequence, SlotStatus::kReady);
  }
  std::optional<uint32_t> take() { return arrivals_.take(now_); }
  // A hundred batches, a microsecond apart.
  void hurry() {
    for (int i = 0; i < 100; ++i) {
      complete(publish());
      now_ += 1us;
      ASSERT_TRUE(take());
    }
  }
  size_t room() {
    size_t batches = 0;
    for (; arrivals_.has_room(); ++batches) publish();
    return batches;
  }

  HeapSlots memory_{1, kSlots};
  Control& control_;
  Arrivals arrivals_;
  Arrivals::Clock::time_point now_{};
};

TEST_F(ArrivalsTest, TakesBatchesInTheOrderOfPublication) {
  const InFlight first = publish();
  const InFlight second = publish();
  complete(second);
  EXPECT_FALSE(take());
  complete(first);
  EXPECT_EQ(take(), first.slot);
  EXPECT_EQ(take(), second.slot);
  EXPECT_TRUE(arrivals_.in_flight().empty());
}

class UnorderedArrivalsTest : public ArrivalsTest {
 protected:
  UnorderedArrivalsTest() : ArrivalsTest(false) {}
};

TEST_F(UnorderedArrivalsTest, TakesBatchesInTheOrderOfCompletion) {
  const InFlight first = publish();
  const InFlight second = publish();
  const InFlight third = publish();
  complete(third);
  complete(first);
  EXPECT_EQ(take(), third.slot);
  EXPECT_EQ(take(), first.slot);
  EXPECT_FALSE(take());
  complete(second);
  EXPECT_EQ(take(), second.slot);
}

TEST_F(UnorderedArrivalsTest, AnyBatchEndsTheSleep) {
  publish();
  const InFlight second = publish();
  ASSERT_FALSE(take());
  std::thread worker([&] {
    if (complete(second)) futex_wake(control_.events_word(), 1);
  });
  while (!take()) arrivals_.sleep(24h);
  worker.join();
}

TEST_F(ArrivalsTest, DoesNotSleepWhenTheBatchHasCome) {
  const InFlight batch = publish();
  ASSERT_FALSE(take());
  complete(batch);
  EXPECT_TRUE(arrivals_.sleep(24h));  // returns at all: ctest limits the time
  EXPECT_EQ(take(), batch.slot);
}

TEST_F(ArrivalsTest, SaysWhenNothingHappened) {
  publish();
  ASSERT_FALSE(take());
  EXPECT_FALSE(arrivals_.sleep(1ms));
  EXPECT_FALSE(take());
}

TEST_F(ArrivalsTest, OnlyTheBatchThatIsNextEndsTheSleep) {
  publish();
  const InFlight second = publish();
  ASSERT_FALSE(take());
  arrivals_.sleep(1ms);
  EXPECT_FALSE(complete(second));
}

TEST_F(ArrivalsTest, AnEventThatIsNoBatchEndsTheSleep) {
  publish();
  ASSERT_FALSE(take());
  ++control_.events_word();  // a death, say, after main last looked
  EXPECT_TRUE(arrivals_.sleep(24h));
}

TEST_F(ArrivalsTest, BatchesThatComeSlowlyAreNotPublishedFurtherAhead) { EXPECT_EQ(room(), 4u); }

TEST_F(ArrivalsTest, BatchesThatComeAtOnceArePublishedFurtherAhead) {
  hurry();
  EXPECT_EQ(room(), kSlots);
}

class FixedArrivalsTest : public ArrivalsTest {
 protected:
  FixedArrivalsTest() : ArrivalsTest(true, {4, 4}) {}
};

TEST_F(FixedArrivalsTest, AGivenPrefetchFactorIsKept) {
  hurry();
  EXPECT_EQ(room(), 4u);
}

TEST_F(ArrivalsTest, ANapEndsThoughTheLaterBatchDoesNotCome) {
  hurry();
  room();
  ASSERT_FALSE(take());
  complete(arrivals_.in_flight().front());  // wakes nobody: main asked for a later one
  EXPECT_TRUE(arrivals_.sleep(24h));
  EXPECT_TRUE(take());
}

TEST_F(ArrivalsTest, AfterANapTheBatchThatIsNextEndsTheSleep) {
  hurry();
  room();
  ASSERT_FALSE(take());
  EXPECT_TRUE(arrivals_.sleep(24h));  // the nap
  ASSERT_FALSE(take());
  const InFlight next = arrivals_.in_flight().front();
  std::thread worker([&] {
    if (complete(next)) futex_wake(control_.events_word(), 1);
  });
  while (!take()) arrivals_.sleep(24h);
  worker.join();
}

// A wake-up that is lost would never end.
TEST_F(ArrivalsTest, NoWakeUpIsLostAtAnySpeed) {
  constexpr uint32_t kBatches = 20'000;
  std::thread worker([&] {
    for (uint32_t sequence = 0; sequence < kBatches; ++sequence) {
      while (control_.published() == sequence) std::this_thread::yield();
      if (complete({sequence, sequence % kSlots})) futex_wake(control_.events_word(), 1);
    }
  });
  for (uint32_t taken = 0; taken < kBatches;) {
    while (control_.published() < kBatches && arrivals_.has_room()) publish();
    if (const auto slot = take()) {
      ASSERT_EQ(*slot, taken++ % kSlots);
    } else {
      arrivals_.sleep(24h);
    }
  }
  worker.join();
}

}  // namespace
}  // namespace stoker::detail
