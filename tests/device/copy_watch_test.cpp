// SPDX-License-Identifier: BSD-3-Clause
#include "device/copy_watch.h"

#include <ATen/core/CachingHostAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <thread>

#include "device_test.h"
#include "loader/slot_pool.h"
#include "processes.h"

namespace stoker::detail {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Slots of 100 bytes, in memory of this test.
class CopyWatchTest : public DeviceTest {
 protected:
  CopyWatchTest() {
    EXPECT_TRUE(install_host_guard(c10::DeviceType::PrivateUse1));
    watch_.emplace(memory_.data(), memory_.size());
  }

  bool release(uint32_t slot) { return watch_->release(slot, memory_.data() + 100 * slot, 100); }
  // As libtorch does after a copy.
  void copied(size_t at, c10::Stream stream) {
    at::getHostAllocator(c10::DeviceType::PrivateUse1)
        ->record_event(memory_.data() + at, nullptr, stream);
  }

  std::array<std::byte, 1000> memory_{};
  std::optional<CopyWatch> watch_;
  const c10::Stream one_ = fake::new_stream();
  const c10::Stream other_ = fake::new_stream(1);
};

TEST_F(CopyWatchTest, ASlotThatWasNotCopiedIsFreeAtOnce) {
  copied(150, one_);
  EXPECT_TRUE(release(0));
  EXPECT_TRUE(release(2));
  EXPECT_FALSE(release(1));
}

TEST_F(CopyWatchTest, ASlotIsFreeWhenItsStreamHasPassed) {
  fake::hold(one_);
  copied(120, one_);
  EXPECT_FALSE(release(1));
  EXPECT_THAT(watch_->take_done(), IsEmpty());
  fake::let_go(one_);
  fake::finish(one_);
  EXPECT_THAT(watch_->take_done(), ElementsAre(1));
  EXPECT_THAT(watch_->take_done(), IsEmpty());
  EXPECT_TRUE(release(1));  // it was not copied again
}

TEST_F(CopyWatchTest, AllStreamsMustHavePassed) {
  fake::hold(other_);
  copied(100, one_);
  copied(160, other_);
  EXPECT_FALSE(release(1));
  fake::finish(one_);
  EXPECT_THAT(watch_->take_done(), IsEmpty());
  fake::let_go(other_);
  fake::finish(other_);
  EXPECT_THAT(watch_->take_done(), ElementsAre(1));
}

TEST_F(CopyWatchTest, OneEventPerStreamHoweverManyCopies) {
  for (int i = 0; i < 10; ++i) copied(static_cast<size_t>(i), one_);
  const int64_t before = fake::counters().events_recorded;
  EXPECT_FALSE(release(0));
  EXPECT_EQ(fake::counters().events_recorded, before + 1);
}

TEST_F(CopyWatchTest, SlotsAreDoneInAnyOrder) {
  fake::hold(one_);
  copied(0, one_);
  copied(100, other_);
  EXPECT_FALSE(release(0));
  EXPECT_FALSE(release(1));
  fake::finish(other_);
  EXPECT_THAT(watch_->take_done(), ElementsAre(1));
  fake::let_go(one_);
  EXPECT_EQ(watch_->wait_for_oldest(), 0u);
  EXPECT_EQ(watch_->wait_for_oldest(), std::nullopt);
}

TEST_F(CopyWatchTest, ItsEndWaitsForTheCopies) {
  fake::hold(one_);
  bool is_copied = false;
  fake::launch(one_, [&is_copied] { is_copied = true; });
  copied(0, one_);
  EXPECT_FALSE(release(0));
  std::thread later([this] {
    std::this_thread::sleep_for(20ms);
    fake::let_go(one_);
  });
  watch_.reset();
  EXPECT_TRUE(is_copied);
  later.join();
}

TEST_F(CopyWatchTest, OthersMemoryIsLeftToTheAllocatorBehind) {
  auto* allocator = at::getHostAllocator(c10::DeviceType::PrivateUse1);
  const at::DataPtr pinned = allocator->allocate(100);
  EXPECT_TRUE(allocator->record_event(pinned.get(), pinned.get_context(), one_));
  std::array<std::byte, 10> plain{};
  EXPECT_FALSE(allocator->record_event(plain.data(), nullptr, one_));
  EXPECT_FALSE(is_watched_host_memory(pinned.get()));
  EXPECT_TRUE(is_watched_host_memory(memory_.data()));
  EXPECT_TRUE(is_watched_host_memory(memory_.data() + memory_.size() - 1));
  EXPECT_FALSE(is_watched_host_memory(memory_.data() + memory_.size()));
  EXPECT_TRUE(install_host_guard(c10::DeviceType::PrivateUse1));  // again: the same one
  EXPECT_EQ(at::getHostAllocator(c10::DeviceType::PrivateUse1), allocator);
}

TEST_F(CopyWatchTest, WithoutAHostAllocatorThereIsNoGuard) {
  EXPECT_FALSE(install_host_guard(c10::DeviceType::Meta));
}

TEST_F(CopyWatchTest, ARecordedEventIsShared) {
  copied(0, one_);
  copied(10, other_);
  const SharedEvent event = take_event(one_.device());
  event->record(one_);
  const int64_t before = fake::counters().events_recorded;
  const RecordedCopies recorded(one_, event);
  EXPECT_FALSE(release(0));
  EXPECT_EQ(fake::counters().events_recorded, before + 1);  // for the other stream
}

TEST_F(CopyWatchTest, DoesNothingInAForkedChild) {
  fake::hold(one_);
  copied(0, one_);
  copied(100, one_);
  EXPECT_FALSE(release(0));
  EXPECT_EQ(in_child([this] {
              const int64_t before = fake::counters().events_recorded;
              require(release(1), "held");
              require(watch_->take_done().empty(), "done");
              watch_.reset();
              require(fake::counters().events_recorded == before, "recorded");
            }),
            "");
  fake::let_go(one_);
}

// --- of a pool

class WatchedPoolTest : public DeviceTest {
 protected:
  static constexpr uint64_t kMegabyte = 1 << 20;

  explicit WatchedPoolTest(uint64_t limit = 10 * kMegabyte)
      : pool_(std::make_shared<SlotPool>(0, InFlightLimit{4, 4}, limit)) {
    pool_->use_device(fake::device(), Pinning::kInPlace, fake::host_pin_api());
  }
  // A slot with a batch of so many bytes, handed out.
  uint32_t take(uint64_t bytes) {
    const uint32_t id = pool_->acquire(10).value();
    const Slot slot = pool_->control().slot(id);
    slot.publish(std::vector<int64_t>(10), 0, {});
    pool_->learn(id, bytes);
    pool_->pin(id, slot.rows_begin(), bytes);
    return id;
  }
  std::byte* rows(uint32_t id) {
    const Slot slot = pool_->control().slot(id);
    return slot.at(slot.rows_begin());
  }
  void copy(uint32_t id, c10::Stream stream) {
    at::getHostAllocator(c10::DeviceType::PrivateUse1)->record_event(rows(id), nullptr, stream);
  }

  std::shared_ptr<SlotPool> pool_;
  const c10::Stream stream_ = fake::new_stream();
};

TEST_F(WatchedPoolTest, WhatABatchUsesIsLockedOnceAndStaysSo) {
  const uint32_t id = take(kMegabyte);
  EXPECT_TRUE(fake::is_registered(rows(id), kMegabyte));
  EXPECT_LT(fake::registered_bytes(), kMegabyte + (1 << 17));
  const int64_t before = fake::counters().registered;
  pool_->give_back(id);
  EXPECT_EQ(take(kMegabyte), id);
  pool_->give_back(id);
  EXPECT_EQ(take(kMegabyte / 2), id);
  EXPECT_EQ(fake::counters().registered, before);
  EXPECT_EQ(pool_->pinning(), Pinning::kInPlace);
}

TEST_F(WatchedPoolTest, PagesAreUnlockedBeforeTheyAreDropped) {
  const uint32_t a = take(3 * kMegabyte);
  const uint32_t b = take(3 * kMegabyte);
  const uint32_t c = take(3 * kMegabyte);
  pool_->give_back(a);
  pool_->give_back(b);
  EXPECT_EQ(take(4 * kMegabyte), b);
  pool_->give_back(c);
  EXPECT_EQ(pool_->acquire(10), c);  // for which a has lost its pages
  EXPECT_FALSE(fake::is_registered(rows(a), 1));
  EXPECT_TRUE(fake::is_registered(rows(b), 4 * kMegabyte));
}

// What is locked counts, also where the batches in it are small.
TEST_F(WatchedPoolTest, LockedMemoryIsHeld) {
  const uint32_t a = take(4 * kMegabyte);
  pool_->give_back(a);
  for (int batch = 0; batch < 200; ++batch) {
    EXPECT_EQ(take(kMegabyte), a);
    pool_->give_back(a);
  }
  // Batches take 1 MB by now, and a 4: beside that five more fit.
  std::vector<uint32_t> taken;
  while (const auto id = pool_->acquire(10, /*may_wait=*/false)) taken.push_back(*id);
  EXPECT_EQ(taken.size(), 6u);
}

TEST_F(WatchedPoolTest, ACopiedSlotIsNotUsedAgainBeforeTheCopyIsDone) {
  const uint32_t a = take(kMegabyte);
  fake::hold(stream_);
  copy(a, stream_);
  pool_->give_back(a);
  const uint32_t b = take(kMegabyte);
  EXPECT_NE(b, a);
  fake::let_go(stream_);
  fake::finish(stream_);
  EXPECT_EQ(take(kMegabyte), a);
}

TEST_F(WatchedPoolTest, WaitsForACopyWhereThereIsNoOtherSlot) {
  const uint32_t a = take(8 * kMegabyte);
  fake::hold(stream_);
  copy(a, stream_);
  pool_->give_back(a);
  EXPECT_EQ(pool_->acquire(10, /*may_wait=*/false), std::nullopt);
  std::thread later([this] {
    std::this_thread::sleep_for(20ms);
    fake::let_go(stream_);
  });
  EXPECT_EQ(pool_->acquire(10), a);
  later.join();
}

TEST_F(WatchedPoolTest, UnlocksAllAtItsEndAfterTheCopies) {
  const uint32_t a = take(kMegabyte);
  take(kMegabyte);
  fake::hold(stream_);
  copy(a, stream_);
  pool_->give_back(a);
  std::thread later([this] {
    std::this_thread::sleep_for(20ms);
    EXPECT_GT(fake::registered_bytes(), 0u);
    fake::let_go(stream_);
  });
  pool_.reset();
  EXPECT_EQ(fake::registered_bytes(), 0u);
  later.join();
}

}  // namespace
}  // namespace stoker::detail
