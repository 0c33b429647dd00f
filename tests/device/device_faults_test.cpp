// SPDX-License-Identifier: BSD-3-Clause
//
// Each step that keeps batches right on their way to the device, left out, and what that does: one
// scenario per step, whose outcome does not depend on time.
#include "device/device_faults.h"

#include <gtest/gtest.h>
#include <stoker/stoker.h>

#include <functional>
#include <optional>

#include "device_test.h"
#include "processes.h"

namespace stoker {
namespace {

using detail::device_faults;

constexpr int kTimes = 20;

class DeviceFaultsTest : public DeviceTest {
 protected:
  // The scenario gives true if a batch came with its own values.
  static void expect_noticed(bool detail::DeviceFaults::*fault,
                             const std::function<bool()>& scenario) {
    int right = 0, noticed = 0;
    for (int i = 0; i < kTimes; ++i) {
      right += scenario() ? 1 : 0;
      fake::finish_all();
      device_faults.*fault = true;
      noticed += scenario() ? 0 : 1;
      fake::finish_all();
      device_faults = {};
    }
    EXPECT_EQ(right, kTimes);
    EXPECT_EQ(noticed, kTimes);
  }
};

// A kernel that is launched while the copy still waits must wait for it.
TEST_F(DeviceFaultsTest, AMissingWaitIsNoticed) {
  static int64_t size = 100;  // memory of a size that is new holds no values of another run
  expect_noticed(&detail::DeviceFaults::no_wait, [] {
    DataLoader loader(rows_of(++size, 8), {.batch_size = 2, .pin_memory = true});
    DevicePrefetcher batches(loader, fake::device());
    const c10::Stream side = fake::last_new_stream();
    fake::hold(side);
    const auto it = batches.begin();
    const LateLook look(*it, fake::current_stream());
    const auto patience = device_faults.no_wait ? 5000ms : 5ms;
    eventually([] { return fake::is_idle(fake::current_stream()); }, patience);
    fake::let_go(side);
    fake::finish_all();
    return look.value() == 0;
  });
}

// A slot whose copy still waits is not the one that the next batch is written to.
TEST_F(DeviceFaultsTest, ASlotThatIsUsedAgainEarlyIsNoticed) {
  expect_noticed(&detail::DeviceFaults::early_reuse, [] {
    DataLoader loader(rows_of(8, 8),
                      {.batch_size = 2, .pin_memory = true, .device = fake::device()});
    const c10::Stream side = fake::last_new_stream();
    fake::hold(side);
    auto it = loader.begin();
    const at::Tensor first = *it;
    ++it;
    ++it;
    fake::let_go(side);
    fake::finish_all();  // before the slots are gone, for which nobody waits
    return is_batch(first, 0);
  });
}

// Memory of a batch that was dropped, but which a kernel has yet to read, is not the next one's.
TEST_F(DeviceFaultsTest, AMissingRecordStreamIsNoticed) {
  expect_noticed(&detail::DeviceFaults::no_record_stream, [] {
    DataLoader loader(rows_of(8, 16),
                      {.batch_size = 2, .pin_memory = true, .device = fake::device()});
    const c10::Stream side = fake::last_new_stream();
    auto it = loader.begin();
    fake::hold(fake::current_stream());
    const LateLook look(*it, fake::current_stream());
    for (int i = 0; i < 4; ++i) ++it;
    fake::finish(side);
    fake::let_go(fake::current_stream());
    fake::finish_all();
    return look.value() == 0;
  });
}

// The program's own copy of a batch that it drops at once.
TEST_F(DeviceFaultsTest, AnUnguardedCopyIsNoticed) {
  expect_noticed(&detail::DeviceFaults::unguarded, [] {
    DataLoader loader(rows_of(8, 16), {.batch_size = 2, .pin_memory = true});
    fake::hold(fake::current_stream());
    auto it = loader.begin();
    const at::Tensor copy = it->to(fake::device(), /*non_blocking=*/true);
    for (int i = 0; i < 4; ++i) ++it;
    fake::let_go(fake::current_stream());
    fake::finish_all();
    return is_batch(copy, 0);
  });
}

}  // namespace
}  // namespace stoker
