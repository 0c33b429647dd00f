// SPDX-License-Identifier: BSD-3-Clause
#include "device/pinned_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>

#include "device/host_pin.h"
#include "device_test.h"
#include "processes.h"

namespace stoker::detail {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kBytes = 64 * kPage;

class PinnedMemoryTest : public DeviceTest {
 protected:
  PinnedMemoryTest() { pinned_.emplace(fake::host_pin_api(), fake::device()); }

  bool pin(uint64_t begin, uint64_t bytes, uint64_t most = kBytes) {
    return pinned_->pin(memory() + begin, bytes, most);
  }
  std::byte* memory() { return memory_.get(); }

  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> memory_{
      static_cast<std::byte*>(std::aligned_alloc(kPage, kBytes))};
  std::optional<PinnedMemory> pinned_;
};

TEST_F(PinnedMemoryTest, LocksWholePages) {
  EXPECT_TRUE(pin(10, 5000));
  EXPECT_TRUE(fake::is_registered(memory(), 2 * kPage));
  EXPECT_EQ(fake::registered_bytes(), 2 * kPage);
  EXPECT_EQ(pinned_->pinned(memory(), kBytes), 2 * kPage);
}

TEST_F(PinnedMemoryTest, LocksNothingTwice) {
  EXPECT_TRUE(pin(0, 2 * kPage));
  const int64_t before = fake::counters().registered;
  EXPECT_TRUE(pin(kPage, 10));
  EXPECT_TRUE(pin(0, 2 * kPage));
  EXPECT_EQ(fake::counters().registered, before);
}

TEST_F(PinnedMemoryTest, NothingIsNothing) {
  EXPECT_TRUE(pin(0, 0));
  EXPECT_EQ(fake::registered_bytes(), 0u);
}

// Grows by a quarter more, so that slow growth costs few calls.
TEST_F(PinnedMemoryTest, AStretchThatGrowsIsLockedAnewAsOne) {
  EXPECT_TRUE(pin(0, 8 * kPage));
  EXPECT_TRUE(pin(4 * kPage, 12 * kPage));
  EXPECT_TRUE(fake::is_registered(memory(), 20 * kPage));
  EXPECT_EQ(fake::registered_bytes(), 20 * kPage);
  const int64_t before = fake::counters().registered;
  EXPECT_TRUE(pin(0, 20 * kPage));
  EXPECT_EQ(fake::counters().registered, before);
}

TEST_F(PinnedMemoryTest, GrowsNoFurtherThanItMay) {
  EXPECT_TRUE(pin(0, 8 * kPage));
  EXPECT_TRUE(pin(0, 16 * kPage, 17 * kPage));
  EXPECT_EQ(fake::registered_bytes(), 17 * kPage);
}

TEST_F(PinnedMemoryTest, GrowsNoFurtherThanTheNextStretch) {
  EXPECT_TRUE(pin(17 * kPage, kPage));
  EXPECT_TRUE(pin(0, 8 * kPage));
  EXPECT_TRUE(pin(0, 16 * kPage));
  EXPECT_EQ(fake::registered_bytes(), 18 * kPage);
}

TEST_F(PinnedMemoryTest, AStretchBetweenTwoBecomesOneWithThem) {
  EXPECT_TRUE(pin(0, 2 * kPage));
  EXPECT_TRUE(pin(8 * kPage, 2 * kPage));
  EXPECT_TRUE(pin(kPage, 8 * kPage, 0));
  EXPECT_TRUE(fake::is_registered(memory(), 10 * kPage));
  EXPECT_EQ(fake::registered_bytes(), 10 * kPage);
}

TEST_F(PinnedMemoryTest, UnlocksThatStretchAlone) {
  EXPECT_TRUE(pin(0, kPage));
  EXPECT_TRUE(pin(8 * kPage, kPage));
  pinned_->unpin(memory(), 4 * kPage);
  EXPECT_FALSE(fake::is_registered(memory(), kPage));
  EXPECT_TRUE(fake::is_registered(memory() + 8 * kPage, kPage));
}

TEST_F(PinnedMemoryTest, UnlocksAllAtItsEnd) {
  EXPECT_TRUE(pin(0, kPage));
  EXPECT_TRUE(pin(8 * kPage, kPage));
  pinned_.reset();
  EXPECT_EQ(fake::registered_bytes(), 0u);
}

TEST_F(PinnedMemoryTest, FailingIsToldOnceAndLeavesNoError) {
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  fake::fail_registering(true);
  EXPECT_FALSE(pin(0, kPage));
  EXPECT_FALSE(fake::error_is_pending());
  EXPECT_FALSE(pinned_->works());
  fake::fail_registering(false);
  EXPECT_FALSE(pin(0, kPage));
  EXPECT_THAT(warnings.texts,
              ElementsAre("stoker: pin_memory is true, but 4096 bytes could not be page-locked: "
                          "the fake refused; further batches will not be pinned"));
}

// Half of a batch locked would be worse than none: no copy may straddle.
TEST_F(PinnedMemoryTest, AStretchThatCannotGrowIsUnlocked) {
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  EXPECT_TRUE(pin(0, kPage));
  EXPECT_TRUE(pin(8 * kPage, kPage));
  fake::fail_registering(true);
  EXPECT_FALSE(pin(0, 2 * kPage));
  EXPECT_EQ(fake::registered_bytes(), kPage);
  EXPECT_TRUE(pin(8 * kPage, kPage));  // what is locked is used on
  EXPECT_FALSE(pin(8 * kPage, 2 * kPage));
  EXPECT_EQ(fake::registered_bytes(), 0u);
}

TEST_F(PinnedMemoryTest, DoesNothingInAForkedChild) {
  EXPECT_TRUE(pin(0, kPage));
  EXPECT_EQ(in_child([this] {
              const int64_t before = fake::counters().unregistered;
              require(!pinned_->pin(memory() + 8 * kPage, kPage, 0), "locked");
              pinned_->unpin(memory(), kPage);
              pinned_.reset();
              require(fake::counters().unregistered == before, "unlocked");
            }),
            "");
  EXPECT_TRUE(fake::is_registered(memory(), kPage));
}

TEST(HostPinTest, WithoutARuntimeThereIsNothing) {
  replace_host_pin_api(std::nullopt);
  EXPECT_FALSE(find_host_pin_api(c10::DeviceType::CPU));
  EXPECT_FALSE(find_host_pin_api(c10::DeviceType::XPU));
}

TEST(HostPinTest, AnErrorWithoutATextIsItsNumber) {
  const HostPinApi api{nullptr, nullptr, nullptr, [](int) -> const char* { return nullptr; }};
  EXPECT_EQ(api.text_of(35), "error 35");
}

}  // namespace
}  // namespace stoker::detail
