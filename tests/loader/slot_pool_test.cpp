// SPDX-License-Identifier: BSD-3-Clause
#include "loader/slot_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "processes.h"

namespace stoker::detail {
namespace {

constexpr uint64_t kMegabyte = 1 << 20;

auto make_pool(uint32_t in_flight = 4, uint64_t limit = uint64_t{1} << 45) {
  return std::make_shared<SlotPool>(2, InFlightLimit{in_flight, in_flight}, limit);
}
// A slot whose batch, of a megabyte, the program keeps.
std::optional<uint32_t> take_and_keep(SlotPool& pool) {
  const auto id = pool.acquire(10);
  if (id) pool.learn(*id, kMegabyte);
  return id;
}

TEST(SlotPoolTest, EverySlotIsMemoryOfItsOwn) {
  const auto pool = make_pool();
  std::set<uint32_t> ids;
  for (int i = 0; i < 4; ++i) ids.insert(pool->acquire(10).value());
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_EQ(pool->made(), 4u);
  for (const uint32_t id : ids) {
    const Slot slot = pool->control().slot(id);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slot.at(0)) % Slot::kPage, 0u);
    *slot.at(0) = *slot.at(slot.bytes() - 1) = static_cast<std::byte>(id + 1);
  }
  for (const uint32_t id : ids) {
    const Slot slot = pool->control().slot(id);
    EXPECT_EQ(*slot.at(0), static_cast<std::byte>(id + 1));
    EXPECT_EQ(*slot.at(slot.bytes() - 1), static_cast<std::byte>(id + 1));
  }
}

TEST(SlotPoolTest, TheSlotGivenBackLastIsUsedFirst) {
  const auto pool = make_pool();
  const uint32_t a = pool->acquire(10).value();
  const uint32_t b = pool->acquire(10).value();
  pool->give_back(a);
  pool->give_back(b);
  EXPECT_EQ(pool->acquire(10), b);
  EXPECT_EQ(pool->acquire(10), a);
  EXPECT_EQ(pool->made(), 2u);
}

// Where another thread of the program holds the lock of the books at most times.
TEST(SlotPoolTest, InAForkedChildASlotMayBeGivenBackWithoutEffect) {
  const auto pool = make_pool();
  const uint32_t slot = pool->acquire(10).value();
  const std::jthread busy([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) pool->memory();
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork_child([&] { pool->give_back(slot); });
    const bool ended = eventually([&] { return !is_alive(child); });
    if (!ended) kill(child, SIGKILL);
    wait_for(child);
    ASSERT_TRUE(ended) << "child " << i << " waits for a lock that nobody holds";
  }
  EXPECT_NE(pool->acquire(10), slot);
}

TEST(SlotPoolTest, GrowsWhenTheProgramKeepsBatches) {
  const auto pool = make_pool(1);
  std::set<uint32_t> ids;
  for (int i = 0; i < 500; ++i) ids.insert(take_and_keep(*pool).value());
  EXPECT_EQ(ids.size(), 500u);
}

TEST(SlotPoolTest, ASlotHasRoomForTheBooksOfItsBatch) {
  const auto pool = make_pool();
  for (const uint64_t samples : {uint64_t{1}, uint64_t{1'000'000}, uint64_t{2'000'000'000}}) {
    const auto id = pool->acquire(samples);
    ASSERT_TRUE(id) << samples;
    EXPECT_TRUE(Slot::has_room(pool->control().slot(*id).bytes(), samples)) << samples;
  }
}

TEST(SlotPoolTest, AFreeSlotThatIsTooSmallIsLeftForOthers) {
  const auto pool = make_pool(3);
  const uint32_t small = pool->acquire(10).value();
  const uint64_t many = pool->control().slot(small).bytes() / 16;
  ASSERT_FALSE(Slot::has_room(pool->control().slot(small).bytes(), many));
  pool->give_back(small);
  const uint32_t large = pool->acquire(many).value();
  EXPECT_NE(large, small);
  EXPECT_TRUE(Slot::has_room(pool->control().slot(large).bytes(), many));
  pool->give_back(large);
  EXPECT_EQ(pool->acquire(many), large);
  EXPECT_EQ(pool->acquire(10), small);
}

TEST(SlotPoolTest, NothingOnceTheAddressSpaceIsUsedUp) {
  const auto pool = make_pool(1);
  uint32_t made = 0;
  while (const auto id = take_and_keep(*pool)) {
    ASSERT_EQ(*id, made++);
    ASSERT_LE(made, Control::kMaxSlots);
  }
  EXPECT_GE(made, 3u);
  EXPECT_FALSE(pool->acquire(10));
  pool->give_back(1);
  EXPECT_EQ(pool->acquire(10), 1u);
  EXPECT_FALSE(pool->acquire(UINT64_C(1) << 40));
}

TEST(SlotPoolTest, UnknownBatchesGetAllTheRoomThatThoseInFlightLeave) {
  const auto few = make_pool(1);
  const auto many = make_pool(1000);
  const auto bytes = [](const std::shared_ptr<SlotPool>& pool) {
    return pool->control().slot(pool->acquire(1).value()).bytes();
  };
  EXPECT_GT(bytes(few), 100 * bytes(many));
  for (int i = 1; i < 1000; ++i) ASSERT_TRUE(many->acquire(1));
}

// What a batch takes: the budget it is given, and what it is found to have taken.
TEST(SlotPoolTest, NoMoreMemoryIsGivenOutThanTheLimit) {
  const auto pool = make_pool(4, 10 * kMegabyte);
  const uint32_t first = pool->acquire(10).value();
  EXPECT_EQ(pool->control().slot(first).header().budget, 10 * kMegabyte / 4);
  pool->learn(first, 3 * kMegabyte);
  const uint32_t second = pool->acquire(10).value();
  ASSERT_TRUE(pool->acquire(10));
  EXPECT_FALSE(pool->acquire(10));
  EXPECT_EQ(pool->memory().kept, 1u);
  pool->learn(second, kMegabyte);
  pool->give_back(second);
  EXPECT_EQ(pool->acquire(10), second);
}

TEST(SlotPoolTest, FreeSlotsLoseTheirPagesBeforeABatchHasToWait) {
  const auto pool = make_pool(4, 10 * kMegabyte);
  const auto first_byte = [&](uint32_t id) -> std::byte& {
    const Slot slot = pool->control().slot(id);
    return *slot.at(slot.rows_begin());
  };
  const auto take = [&] {
    const uint32_t id = pool->acquire(10).value();
    pool->control().slot(id).publish(std::vector<int64_t>(10), 0, {});
    first_byte(id) = std::byte{1};
    return id;
  };
  const uint32_t a = take();
  const uint32_t b = take();
  const uint32_t c = take();
  for (const uint32_t id : {a, b, c}) pool->learn(id, 3 * kMegabyte);
  pool->give_back(a);
  pool->give_back(b);  // and c is kept
  const auto next = pool->acquire(10);
  EXPECT_EQ(next, b);
  EXPECT_EQ(first_byte(a), std::byte{1});  // all three fit
  pool->learn(*next, 4 * kMegabyte);       // b is kept too
  EXPECT_EQ(pool->acquire(10), std::nullopt);
  EXPECT_EQ(pool->memory().kept, 2u);
  pool->give_back(c);
  EXPECT_EQ(pool->acquire(10), c);
  EXPECT_EQ(first_byte(a), std::byte{0});
}

TEST(SlotPoolTest, PagesOfAnUnusuallyLargeBatchAreGivenBack) {
  const auto pool = make_pool(4);
  const uint32_t large = pool->acquire(10).value();
  const Slot slot = pool->control().slot(large);
  slot.publish(std::vector<int64_t>(10), 0, {});
  *slot.at(slot.rows_begin()) = std::byte{1};
  pool->learn(large, 1000 * kMegabyte);
  const uint32_t usual = pool->acquire(10).value();
  for (int batch = 0; batch < 200; ++batch) {
    pool->learn(usual, kMegabyte);
    pool->give_back(usual);
    ASSERT_EQ(pool->acquire(10), usual);
  }
  pool->give_back(large);
  ASSERT_EQ(pool->acquire(10), large);
  EXPECT_EQ(*slot.at(slot.rows_begin()), std::byte{0});
}

// A pool where `ulimit -v` leaves 2 GB.
TEST(SlotPoolTest, MakesDoWithLittleAddressSpace) {
  EXPECT_EQ(in_child([] {
              uint64_t pages = 0;
              std::ifstream("/proc/self/statm") >> pages;
              rlimit limit{};
              getrlimit(RLIMIT_AS, &limit);
              limit.rlim_cur = pages * 4096 + (uint64_t{2} << 30);
              require(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
              const auto pool = make_pool(8);
              for (int i = 0; i < 8; ++i) {
                const auto id = pool->acquire(100);
                require(id.has_value(), "no slot " + std::to_string(i));
                require(pool->control().slot(*id).bytes() >= Slot::kMinBytes, "a tiny slot");
                *pool->control().slot(*id).at(pool->control().slot(*id).bytes() - 1) = std::byte{1};
              }
            }),
            "");
}

TEST(LeaseTest, TheLastReleaseGivesTheSlotBack) {
  const auto pool = make_pool();
  const uint32_t slot = pool->acquire(10).value();
  auto* lease = new Lease(pool, slot);
  lease->add();
  Lease::release(lease);
  EXPECT_NE(pool->acquire(10), slot);
  Lease::release(lease);
  EXPECT_EQ(pool->acquire(10), slot);
}

TEST(LeaseTest, KeepsThePoolAndItsMemory) {
  auto pool = make_pool();
  const uint32_t slot = pool->acquire(10).value();
  std::byte* memory = pool->control().slot(slot).at(0);
  auto* lease = new Lease(pool, slot);
  const std::weak_ptr<SlotPool> watched = pool;
  pool.reset();
  EXPECT_FALSE(watched.expired());
  *memory = std::byte{7};
  EXPECT_EQ(*memory, std::byte{7});
  Lease::release(lease);
  EXPECT_TRUE(watched.expired());
}

// Four threads drop a tensor of each batch while the program takes slots for the next ones.
TEST(LeaseTest, MayEndOnAnyThread) {
  constexpr size_t kBatches = 2000;
  constexpr uint32_t kThreads = 4;
  const auto pool = make_pool(1);
  std::vector<std::atomic<Lease*>> leases(kBatches);
  std::vector<std::thread> threads;
  for (uint32_t id = 0; id < kThreads; ++id) {
    threads.emplace_back([&leases] {
      for (auto& lease : leases) {
        while (lease.load() == nullptr) std::this_thread::yield();
        Lease::release(lease.load());
      }
    });
  }
  for (auto& place : leases) {
    auto* lease = new Lease(pool, take_and_keep(*pool).value());
    for (uint32_t i = 1; i < kThreads; ++i) lease->add();
    place.store(lease);
  }
  for (auto& thread : threads) thread.join();
  const uint32_t made = pool->made();
  std::set<uint32_t> free;
  for (uint32_t i = 0; i < made; ++i) free.insert(pool->acquire(10).value());
  EXPECT_EQ(free.size(), made);
  EXPECT_EQ(pool->made(), made);  // all of them had been given back, each once
}

}  // namespace
}  // namespace stoker::detail
