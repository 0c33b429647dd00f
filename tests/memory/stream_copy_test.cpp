// SPDX-License-Identifier: BSD-3-Clause
#include "memory/stream_copy.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "support.h"

namespace stoker::detail {
namespace {

std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937_64 random(test_seed());
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Each alignment of either side within a cache line, and lengths around whole lines.
TEST(StreamCopyTest, CopiesTheBytesAndNoOthers) {
  constexpr auto kGuard = std::byte{0xa5};
  const std::vector<std::byte> source = random_bytes(1024);
  for (size_t to = 0; to < 64; ++to) {
    for (size_t from = 0; from < 64; from += 7) {
      for (const size_t bytes : {0, 1, 15, 16, 63, 64, 65, 127, 128, 200, 640}) {
        std::vector<std::byte> target(1024, kGuard);
        stream_copy(target.data() + to, source.data() + from, bytes);
        std::vector<std::byte> expected(1024, kGuard);
        std::copy_n(source.begin() + static_cast<ptrdiff_t>(from), bytes,
                    expected.begin() + static_cast<ptrdiff_t>(to));
        ASSERT_EQ(target, expected) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

TEST(StreamCopyTest, CopiesMoreThanTheCachesHold) {
  const std::vector<std::byte> source = random_bytes(64 << 20);
  std::vector<std::byte> target(source.size());
  stream_copy(target.data(), source.data(), source.size());
  EXPECT_EQ(target, source);
}

// Who acquires what was released after the copy sees all of it.
TEST(StreamCopyTest, IsDoneBeforeWhatTheCallerReleasesAfterwards) {
  constexpr size_t kBytes = 1 << 16;
  std::vector<std::byte> target(kBytes);
  std::atomic<int> round{0};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    for (int i = 1; i <= 100; ++i) {
      while (round.load(std::memory_order_acquire) < 2 * i - 1) std::this_thread::yield();
      for (const std::byte byte : target) wrong += byte != static_cast<std::byte>(i);
      round.store(2 * i, std::memory_order_release);
    }
  });
  for (int i = 1; i <= 100; ++i) {
    const std::vector<std::byte> source(kBytes, static_cast<std::byte>(i));
    stream_copy(target.data(), source.data(), kBytes);
    round.store(2 * i - 1, std::memory_order_release);
    while (round.load(std::memory_order_acquire) < 2 * i) std::this_thread::yield();
  }
  reader.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace stoker::detail
