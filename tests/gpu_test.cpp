// SPDX-License-Identifier: BSD-3-Clause
//
// What the fake accelerator cannot show: the same promises on a real one. Skipped where there is
// none. Loaders are made first, and fork before the driver is asked, but where a test says so.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <stoker/stoker.h>

#include <optional>
#include <utility>
#include <vector>

#include "datasets.h"
#include "device/accelerator.h"

namespace stoker {
namespace {

// Skips the test; for use behind the construction of its loader.
#define NEEDS_ACCELERATOR()                                                                     \
  if (!detail::default_accelerator())                                                           \
  GTEST_SKIP() << "libtorch finds no accelerator that can be used here: built for the CPU, or " \
                  "no driver, or no device"

// Sample i is so many numbers, all i.
auto rows_of(int64_t numbers_per_sample, size_t count) {
  return Made{count, [=](size_t i) {
                return at::full({numbers_per_sample}, static_cast<int64_t>(i), at::kLong);
              }};
}

// Numbers of a batch on the device that are not those of samples `first` on; stays there.
at::Tensor wrong(const at::Tensor& batch, int64_t first) {
  const at::Tensor want = at::arange(first, first + batch.size(0), batch.options());
  return batch.ne(want.unsqueeze(1)).sum();
}

// Keeps the device busy for a while, so that main runs ahead of it.
void be_slow(at::Device device) {
  at::Tensor a = at::ones({1024, 1024}, at::TensorOptions(at::kFloat).device(device));
  for (int i = 0; i < 8; ++i) a = at::mm(a, a).clamp(0, 1);
}

TEST(GpuTest, AThousandBatchesComeRightToASlowConsumer) {
  constexpr int64_t kBatches = 1000, kBatchSize = 8;
  DataLoader loader(rows_of(4096, kBatches * kBatchSize),
                    {.batch_size = kBatchSize, .num_workers = 2, .pin_memory = true});
  NEEDS_ACCELERATOR();
  const at::Device device = *detail::default_accelerator();
  DevicePrefetcher batches(loader, device);
  at::Tensor errors = at::zeros({}, at::TensorOptions(at::kLong).device(device));
  int64_t first = 0;
  for (auto& batch : batches) {
    if (first % (10 * kBatchSize) == 0) be_slow(device);
    errors += wrong(batch, first);
    first += batch.size(0);
  }
  EXPECT_EQ(first, kBatches * kBatchSize);
  EXPECT_EQ(errors.item<int64_t>(), 0);
}

TEST(GpuTest, BatchesArePinnedInPlace) {
  DataLoader loader(rows_of(4096, 64), {.batch_size = 8, .num_workers = 2, .pin_memory = true});
  NEEDS_ACCELERATOR();
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : loader) {
      ASSERT_TRUE(batch.is_pinned());
      ASSERT_EQ(batch.pin_memory().data_ptr(), batch.data_ptr());
    }
  }
  EXPECT_EQ(loader.stats().pinning, Pinning::kInPlace);
}

TEST(GpuTest, TheProgramsOwnCopiesAreSafe) {
  constexpr int64_t kBatches = 300, kBatchSize = 8;
  DataLoader loader(rows_of(1 << 16, kBatches * kBatchSize),
                    {.batch_size = kBatchSize, .num_workers = 2, .pin_memory = true});
  NEEDS_ACCELERATOR();
  const at::Device device = *detail::default_accelerator();
  at::Tensor errors = at::zeros({}, at::TensorOptions(at::kLong).device(device));
  int64_t first = 0;
  for (auto& batch : loader) {
    be_slow(device);  // in front of the copy, on the same stream
    const at::Tensor there = std::exchange(batch, at::Tensor()).to(device, /*non_blocking=*/true);
    errors += wrong(there, first);
    first += there.size(0);
  }
  EXPECT_EQ(first, kBatches * kBatchSize);
  EXPECT_EQ(errors.item<int64_t>(), 0);
}

// Not promised by NVIDIA, but what Python's loader does, too.
TEST(GpuTest, WorkersMayBeForkedWhenTheDeviceIsInUse) {
  NEEDS_ACCELERATOR();
  const at::Device device = *detail::default_accelerator();
  be_slow(device);
  for (const bool persistent : {true, false}) {
    DataLoader loader(rows_of(4096, 400), {.batch_size = 8,
                                           .num_workers = 2,
                                           .pin_memory = true,
                                           .persistent_workers = persistent,
                                           .device = device});
    at::Tensor errors = at::zeros({}, at::TensorOptions(at::kLong).device(device));
    for (int epoch = 0; epoch < 3; ++epoch) {
      int64_t first = 0;
      for (auto& batch : loader) {
        errors += wrong(batch, first);
        first += batch.size(0);
      }
      EXPECT_EQ(first, 400);
    }
    EXPECT_EQ(errors.item<int64_t>(), 0);
  }
}

TEST(GpuTest, EveryDeviceHasItsLoader) {
  NEEDS_ACCELERATOR();
  const at::DeviceType type = detail::default_accelerator()->type();
  for (int index = 0; index < detail::device_count(type); ++index) {
    const at::Device device(type, static_cast<at::DeviceIndex>(index));
    DataLoader loader(rows_of(4096, 80),
                      {.batch_size = 8, .num_workers = 1, .pin_memory = true, .device = device});
    int64_t first = 0;
    for (auto& batch : loader) {
      ASSERT_EQ(batch.device(), device);
      ASSERT_EQ(wrong(batch, first).item<int64_t>(), 0);
      first += batch.size(0);
    }
  }
}

TEST(GpuTest, ChangesAreMadeThere) {
  DataLoader loader(Made{4,
                         [](size_t) {
                           return at::ones({3, 8, 8}, at::kByte);
                         }},
                    {.batch_size = 4, .pin_memory = true});
  NEEDS_ACCELERATOR();
  DevicePrefetcher batches(loader, *detail::default_accelerator(),
                           {.memory_format = at::MemoryFormat::ChannelsLast,
                            .transform = [](size_t, at::Tensor t) { return t.to(at::kHalf); }});
  const at::Tensor batch = *batches.begin();
  EXPECT_EQ(batch.scalar_type(), at::kHalf);
  EXPECT_TRUE(batch.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(batch.sum().item<float>(), 4 * 3 * 8 * 8);
}

TEST(GpuTest, MemoryIsUnlockedAndLockedAnewAllDay) {
  NEEDS_ACCELERATOR();
  const at::Device device = *detail::default_accelerator();
  for (int i = 0; i < 50; ++i) {
    DataLoader loader(rows_of(1 << 16, 24), {.batch_size = 8, .pin_memory = true});
    const at::Tensor there = (*loader.begin()).to(device, /*non_blocking=*/true);
    ASSERT_EQ(wrong(there, 0).item<int64_t>(), 0);
  }
}

}  // namespace
}  // namespace stoker
