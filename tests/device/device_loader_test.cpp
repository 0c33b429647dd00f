// SPDX-License-Identifier: BSD-3-Clause
//
// Whole loaders whose batches go to a device: by the `device` option, a DevicePrefetcher, or copies
// of the program's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/stoker.h>

#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device_test.h"
#include "processes.h"
#include "support.h"

namespace stoker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class DeviceLoaderTest : public DeviceTest {};

auto pairs(size_t count) {
  return Made{count, [](size_t i) {
                return std::pair(at::full({16}, static_cast<int64_t>(i), at::kLong),
                                 static_cast<int64_t>(i));
              }};
}

TEST_F(DeviceLoaderTest, BatchesArriveOnTheDeviceWithTheirValues) {
  fake::set_delay(std::chrono::microseconds(100));
  for (const int64_t workers : {0, 2}) {
    for (const bool pin : {false, true}) {
      DataLoader loader(
          pairs(101),
          {.batch_size = 4, .num_workers = workers, .pin_memory = pin, .device = fake::device()});
      for (int epoch = 0; epoch < 2; ++epoch) {
        int64_t first = 0;
        for (auto& [rows, labels] : loader) {
          ASSERT_EQ(rows.device(), fake::device());
          ASSERT_EQ(labels.device(), fake::device());
          ASSERT_TRUE(is_batch(rows, first)) << workers << pin << first;
          first += rows.size(0);
        }
        EXPECT_EQ(first, 101);
      }
      EXPECT_EQ(loader.stats().total.samples, 202);
      EXPECT_EQ(loader.stats().total.batches, 52);
    }
  }
}

// What a slow consumer reads late is still its own batch's.
TEST_F(DeviceLoaderTest, ASlowConsumerSeesEveryBatchAsItWas) {
  fake::set_delay(std::chrono::microseconds(50));
  DataLoader loader(
      rows_of(64, 800),
      {.batch_size = 4, .num_workers = 2, .pin_memory = true, .device = fake::device()});
  std::vector<LateLook> looks;
  for (auto& batch : loader) looks.emplace_back(batch, fake::current_stream());
  fake::finish_all();
  ASSERT_EQ(looks.size(), 200u);
  for (size_t i = 0; i < looks.size(); ++i)
    ASSERT_EQ(looks[i].value(), 4 * static_cast<int64_t>(i));
}

// The promise of the steady state.
TEST_F(DeviceLoaderTest, ABatchCostsOneCopyPerTensorOneEventAndOneWait) {
  constexpr int64_t kBatches = 50;
  DataLoader loader(
      pairs(4 * kBatches),
      {.batch_size = 4, .num_workers = 2, .pin_memory = true, .device = fake::device()});
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto& now = fake::counters();
    const int64_t copies = now.copies_to_device, async = now.async_copies,
                  events = now.events_recorded, waits = now.waits, syncs = now.syncs,
                  on_device = now.copies_on_device;
    int64_t batches = 0;
    for ([[maybe_unused]] auto& batch : loader) ++batches;
    EXPECT_EQ(batches, kBatches);
    EXPECT_EQ(now.copies_to_device - copies, 2 * kBatches);
    EXPECT_EQ(now.async_copies - async, 2 * kBatches);
    EXPECT_EQ(now.events_recorded - events, kBatches);
    EXPECT_EQ(now.waits - waits, kBatches);
    EXPECT_EQ(now.syncs - syncs, 0);
    EXPECT_EQ(now.copies_on_device - on_device, 0);
  }
}

TEST_F(DeviceLoaderTest, EventsAreUsedAgain) {
  DataLoader loader(pairs(400), {.batch_size = 4, .pin_memory = true, .device = fake::device()});
  for ([[maybe_unused]] auto& batch : loader) {
  }
  fake::finish_all();
  const int64_t made = fake::counters().events_made;
  for ([[maybe_unused]] auto& batch : loader) fake::finish(fake::last_new_stream());
  EXPECT_LE(fake::counters().events_made - made, 4);
}

TEST_F(DeviceLoaderTest, TheFirstBatchDoesNotWaitForTheSecond) {
  Shared<std::atomic<bool>> gate;
  const auto dataset = Made{3, [=](size_t i) {
                              if (i > 0) sleep_until([&] { return gate->load(); });
                              return static_cast<int64_t>(i);
                            }};
  DataLoader loader(dataset, {.num_workers = 1, .device = fake::device()});
  auto it = loader.begin();
  EXPECT_EQ(it->item<int64_t>(), 0);
  *gate = true;
  ++it;
  EXPECT_EQ(it->item<int64_t>(), 1);
}

TEST_F(DeviceLoaderTest, PinnedBatchesArePinnedInPlaceOncePerSlot) {
  for (const int64_t workers : {0, 2}) {
    const int64_t before = fake::counters().registered;
    {
      DataLoader loader(pairs(103), {.batch_size = 4, .num_workers = workers, .pin_memory = true});
      for (int epoch = 0; epoch < 3; ++epoch) {
        for (auto& [rows, labels] : loader) {
          ASSERT_TRUE(rows.is_pinned());
          ASSERT_TRUE(labels.is_pinned());
          ASSERT_EQ(rows.pin_memory().data_ptr(), rows.data_ptr());
        }
      }
      EXPECT_EQ(loader.stats().pinning, Pinning::kInPlace);
      // At most as many slots as are in flight or with the program: 64 tiny batches.
      EXPECT_LE(fake::counters().registered - before, 64 + 2);
      EXPECT_GT(fake::registered_bytes(), 0u);
    }
    EXPECT_EQ(fake::registered_bytes(), 0u);
  }
}

TEST_F(DeviceLoaderTest, WithoutPinningNothingIsLocked) {
  DataLoader loader(pairs(10), {.batch_size = 4});
  EXPECT_FALSE((*loader.begin()).first.is_pinned());
  EXPECT_EQ(fake::registered_bytes(), 0u);
  EXPECT_EQ(loader.stats().pinning, Pinning::kNone);
}

// Of all sizes, in no order; the fake refuses a copy out of half-locked memory.
TEST_F(DeviceLoaderTest, BatchesOfChangingSizesStayPinned) {
  std::mt19937_64 random(test_seed());
  std::vector<int64_t> sizes(60);
  for (auto& size : sizes) size = 1 + static_cast<int64_t>(random() % 20'000);
  const auto dataset = Made{sizes.size(), [&](size_t i) {
                              return at::full({sizes[i]}, static_cast<int64_t>(i), at::kLong);
                            }};
  const int64_t before = fake::counters().registered;
  DataLoader loader(dataset, {.num_workers = 2, .pin_memory = true, .prefetch_factor = 1});
  for (int epoch = 0; epoch < 3; ++epoch) {
    int64_t i = 0;
    for (auto& batch : loader) {
      ASSERT_TRUE(batch.is_pinned());
      const at::Tensor there = batch.to(fake::device(), /*non_blocking=*/true);
      ASSERT_TRUE(is_batch(there, i++));
    }
  }
  // Each slot grows a few times, and is done.
  EXPECT_LE(fake::counters().registered - before, 8 * 12);
}

TEST_F(DeviceLoaderTest, WhereMemoryCannotBeLockedTheLoaderSaysSoOnceAndGoesOn) {
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  fake::fail_registering(true);
  DataLoader loader(rows_of(8, 40),
                    {.batch_size = 4, .pin_memory = true, .device = fake::device()});
  int64_t first = 0;
  for (auto& batch : loader) {
    ASSERT_TRUE(is_batch(batch, first));
    first += 4;
  }
  EXPECT_EQ(first, 40);
  EXPECT_THAT(warnings.texts, ElementsAre(HasSubstr("could not be page-locked: the fake refused")));
  EXPECT_EQ(loader.stats().pinning, Pinning::kNone);
  EXPECT_FALSE(fake::error_is_pending());
}

// Without a function that locks memory, batches are copied to memory of libtorch's, which watches
// over it itself.
TEST_F(DeviceLoaderTest, WithoutARuntimeThatLocksMemoryBatchesAreCopied) {
  detail::replace_host_pin_api(std::nullopt);
  DataLoader loader(rows_of(8, 40), {.batch_size = 4, .pin_memory = true});
  fake::hold(fake::current_stream());
  std::vector<at::Tensor> copies;
  for (auto& batch : loader) {
    ASSERT_TRUE(batch.is_pinned());
    copies.push_back(batch.to(fake::device(), /*non_blocking=*/true));
  }
  fake::let_go(fake::current_stream());
  for (size_t i = 0; i < copies.size(); ++i) {
    ASSERT_TRUE(is_batch(copies[i], 4 * static_cast<int64_t>(i)));
  }
  EXPECT_EQ(loader.stats().pinning, Pinning::kCopied);
  EXPECT_EQ(fake::registered_bytes(), 0u);
}

TEST_F(DeviceLoaderTest, WithoutPinnedMemoryTheLoaderSaysSoAndGoesOn) {
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  detail::replace_host_pin_api(std::nullopt);
  fake::refuse_pinned_memory(true);
  DataLoader loader(rows_of(8, 4), {.batch_size = 4, .pin_memory = true});
  EXPECT_FALSE((*loader.begin()).is_pinned());
  EXPECT_EQ(loader.stats().pinning, Pinning::kNone);
  EXPECT_THAT(warnings.texts,
              ElementsAre("stoker: pin_memory is true, but fake:0 has no pinned memory; batches "
                          "will not be pinned"));
}

TEST_F(DeviceLoaderTest, TheProgramsOwnCopiesAreSafe) {
  fake::set_delay(std::chrono::microseconds(200));
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(rows_of(64, 200),
                      {.batch_size = 4, .num_workers = workers, .pin_memory = true});
    const std::array<c10::Stream, 2> streams{fake::new_stream(), fake::new_stream()};
    std::vector<at::Tensor> copies;
    for (auto& batch : loader) {
      const c10::StreamGuard guard(streams.at(copies.size() % 2));
      // A part of it, in two copies.
      const at::Tensor part = std::move(batch).slice(0, 1);
      copies.push_back(part.to(fake::device(), true));
      copies.push_back(part.to(fake::device(1), true));
    }
    fake::finish_all();
    for (size_t i = 0; i < copies.size(); ++i) {
      ASSERT_TRUE(is_batch(copies[i], 4 * static_cast<int64_t>(i / 2) + 1)) << i;
    }
  }
}

// The program keeps nothing, but all memory is being copied: then the loader waits.
TEST_F(DeviceLoaderTest, LittleMemoryIsEnough) {
  constexpr int64_t kNumbers = 1 << 17;  // a megabyte
  constexpr uint64_t kLimit = 5 << 19;   // .. two and a half
  fake::set_delay(std::chrono::milliseconds(1));
  for (const int64_t workers : {0, 2}) {
    DataLoaderOptions options{.num_workers = workers,
                              .pin_memory = true,
                              .shared_memory_limit = kLimit,
                              .device = fake::device()};
    if (workers > 0) options.prefetch_factor = 1;
    DataLoader loader(rows_of(kNumbers, 30), options);
    int64_t i = 0;
    for (auto& batch : loader) ASSERT_TRUE(is_batch(batch, i++));
    EXPECT_EQ(i, 30);
    EXPECT_LE(fake::registered_bytes(), kLimit);
  }
}

TEST_F(DeviceLoaderTest, SeveralLoadersDevicesAndThreads) {
  fake::set_delay(std::chrono::microseconds(100));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  std::vector<DataLoader<decltype(rows_of(0, 0))>> loaders;
  for (int t = 0; t < 4; ++t) {
    loaders.emplace_back(
        rows_of(32 + t, 120),
        DataLoaderOptions{
            .batch_size = 4, .num_workers = 1, .pin_memory = true, .device = fake::device(t % 2)});
  }
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int epoch = 0; epoch < 3; ++epoch) {
        int64_t first = 0;
        for (auto& batch : loaders[static_cast<size_t>(t)]) {
          right += batch.device() == fake::device(t % 2) && is_batch(batch, first);
          first += 4;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, 4 * 3 * 30);
}

TEST_F(DeviceLoaderTest, BatchesMayBeDroppedByAnotherThread) {
  fake::set_delay(std::chrono::microseconds(50));
  DataLoader loader(rows_of(16, 200), {.batch_size = 4, .num_workers = 1, .pin_memory = true});
  std::vector<at::Tensor> copies;
  for (auto& batch : loader) {
    copies.push_back(batch.to(fake::device(), true));
    std::thread([dropped = std::exchange(batch, at::Tensor())]() mutable {
      dropped.reset();
    }).join();
  }
  for (size_t i = 0; i < copies.size(); ++i) {
    ASSERT_TRUE(is_batch(copies[i], 4 * static_cast<int64_t>(i)));
  }
}

TEST_F(DeviceLoaderTest, BatchesOutliveTheLoaderInTheMiddleOfACopy) {
  std::optional<at::Tensor> kept, copy;
  {
    DataLoader loader(
        rows_of(16, 40),
        {.batch_size = 4, .num_workers = 1, .pin_memory = true, .device = fake::device()});
    auto it = loader.begin();
    fake::set_delay(std::chrono::milliseconds(5));
    ++it;
    kept = *it;
  }
  EXPECT_TRUE(is_batch(*kept, 4));
  {
    DataLoader loader(rows_of(16, 40), {.batch_size = 4, .pin_memory = true});
    copy = (*loader.begin()).to(fake::device(), true);
  }
  EXPECT_TRUE(is_batch(*copy, 0));
  EXPECT_EQ(fake::registered_bytes(), 0u);
}

TEST_F(DeviceLoaderTest, ErrorsComeInTheirPlaceAndStay) {
  const auto dataset = Made{20, [](size_t i) {
                              if (i == 9) throw std::runtime_error("no such file");
                              return static_cast<int64_t>(i);
                            }};
  DataLoader loader(dataset, {.batch_size = 2, .num_workers = 1, .device = fake::device()});
  auto it = loader.begin();
  for (int64_t i = 0; i < 3; ++i) ++it;
  EXPECT_EQ(numbers(it->cpu()), (Numbers{6, 7}));
  EXPECT_THROW(++it, WorkerError);
  EXPECT_THROW(++it, WorkerError);
  EXPECT_EQ(numbers((*loader.begin()).cpu()), (Numbers{0, 1}));
}

// Batches are pulled ahead of the one that the program has.
TEST_F(DeviceLoaderTest, AStateTellsOfWhatWasHandedOutAndNotOfWhatWasPulled) {
  const auto holes = Made{14, [](size_t i) {
                            if (i == 5 || i == 11) throw std::runtime_error("broken");
                            return static_cast<int64_t>(i);
                          }};
  const DataLoaderOptions options{
      .batch_size = 2, .num_workers = 2, .on_error = OnError::kSkip, .device = fake::device()};
  const auto all_of = [](auto&& loader) {
    Numbers all;
    for (auto& batch : loader) {
      for (const int64_t value : numbers(batch.cpu())) all.push_back(value);
    }
    return all;
  };
  for (size_t taken = 1; taken < 6; ++taken) {
    DataLoader loader(holes, options);
    Numbers seen;
    auto it = loader.begin();
    for (;; ++it) {
      for (const int64_t value : numbers(it->cpu())) seen.push_back(value);
      if (seen.size() == 2 * taken) break;
    }
    EXPECT_EQ(loader.stats().errors, (seen.back() > 5) + (seen.back() > 11));
    DataLoader other(holes, options);
    other.load_state_dict(loader.state_dict());
    const Numbers rest = all_of(other);
    seen.insert(seen.end(), rest.begin(), rest.end());
    EXPECT_EQ(seen, (Numbers{0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13})) << taken;
  }
}

TEST_F(DeviceLoaderTest, AStreamsEndThatWasOnlyPulledIsNotInTheState) {
  struct Five {
    struct Stream {
      int64_t at = 0;
      std::optional<int64_t> next() { return at < 5 ? std::optional(at++) : std::nullopt; }
    };
    Stream stream() const { return {}; }
  };
  for (int taken = 1; taken < 3; ++taken) {
    const DataLoaderOptions options{.batch_size = 2, .num_workers = 1, .device = fake::device()};
    DataLoader loader(Five{}, options);
    Numbers seen;
    auto it = loader.begin();
    for (int i = 1;; ++i, ++it) {
      for (const int64_t value : numbers(it->cpu())) seen.push_back(value);
      if (i == taken) break;
    }
    DataLoader other(Five{}, options);
    other.load_state_dict(loader.state_dict());
    for (auto& batch : other) {
      for (const int64_t value : numbers(batch.cpu())) seen.push_back(value);
    }
    EXPECT_EQ(seen, up_to(5)) << taken;
  }
}

TEST_F(DeviceLoaderTest, LeavingEpochsEarlyLeavesTheRestRight) {
  DataLoader loader(Counting{60}, {.batch_size = 3, .num_workers = 2, .device = fake::device()});
  for (int epoch = 0; epoch < 20; ++epoch) {
    auto it = loader.begin();
    for (int64_t i = 0; i < epoch % 5; ++i) ++it;
    ASSERT_EQ(it->cpu().min().item<int64_t>(), 3 * (epoch % 5));
  }
  Numbers all;
  for (auto& batch : loader) {
    for (const int64_t value : numbers(batch.cpu())) all.push_back(value);
  }
  EXPECT_EQ(all, up_to(60));
}

TEST_F(DeviceLoaderTest, WorkersForkedInEachEpochAreNoTrouble) {
  DataLoader loader(rows_of(8, 16), {.batch_size = 4,
                                     .num_workers = 2,
                                     .pin_memory = true,
                                     .persistent_workers = false,
                                     .device = fake::device()});
  for (int epoch = 0; epoch < 3; ++epoch) {
    int64_t first = 0;
    for (auto& batch : loader) {
      ASSERT_TRUE(is_batch(batch, first));
      first += 4;
    }
    EXPECT_EQ(first, 16);
  }
}

TEST_F(DeviceLoaderTest, StringsAndStructureComeAlong) {
  const auto dataset =
      Made{4, [](size_t i) {
             return std::pair(std::to_string(i), std::vector<int64_t>{1, static_cast<int64_t>(i)});
           }};
  DataLoader loader(dataset, {.batch_size = 4, .device = fake::device(1)});
  const auto it = loader.begin();
  const auto& [names, columns] = *it;
  EXPECT_THAT(names, ElementsAre("0", "1", "2", "3"));
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(numbers(columns[1].cpu()), up_to(4));
}

TEST_F(DeviceLoaderTest, NumbersThatAreNoTensorsStayOnTheHost) {
  const auto pairs =
      Made{20, [](size_t i) {
             return std::pair(at::full({3}, static_cast<double>(i)), static_cast<int64_t>(i));
           }};
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(pairs, {.num_workers = workers, .device = fake::device()}, DefaultConvert{});
    int64_t expected = 0;
    for (auto& [tensor, number] : loader) {
      EXPECT_EQ(tensor.device(), fake::device());
      EXPECT_EQ(number, expected);
      EXPECT_EQ(tensor.cpu()[0].item<double>(), static_cast<double>(expected++));
    }
    EXPECT_EQ(expected, 20);
  }
  const auto sum = [](std::vector<std::pair<at::Tensor, int64_t>>& samples) {
    int64_t all = 0;
    for (const auto& sample : samples) all += sample.second;
    return all;
  };
  DataLoader collated(pairs, {.batch_size = 20, .num_workers = 1, .device = fake::device()}, sum);
  for (auto& batch : collated) EXPECT_EQ(batch, 190);
}

TEST_F(DeviceLoaderTest, TheCpuAsTheDeviceIsNoDevice) {
  const int64_t uses = fake::counters().stream_uses;
  DataLoader loader(rows_of(4, 8), {.batch_size = 2, .num_workers = 1, .device = at::kCPU});
  int64_t first = 0;
  for (auto& batch : loader) {
    EXPECT_TRUE(is_batch(batch, first));
    first += 2;
  }
  EXPECT_EQ(first, 8);
  EXPECT_EQ(fake::counters().stream_uses, uses);
}

TEST_F(DeviceLoaderTest, AnUnusableDeviceIsRefusedAtConstruction) {
  for (const int64_t workers : {0, 1}) {
    EXPECT_EQ(text_of<std::invalid_argument>([&] {
                DataLoader loader(Counting{4}, {.num_workers = workers, .device = fake::device(2)});
              }),
              "stoker: device is fake:2, but libtorch finds 2 such devices here; give one that is "
              "there, or cpu");
  }
}

TEST_F(DeviceLoaderTest, AForkedChildMayDropEverything) {
  std::optional<DataLoader<decltype(rows_of(0, 0))>> loader;
  loader.emplace(rows_of(4, 40),
                 DataLoaderOptions{.batch_size = 2, .num_workers = 1, .pin_memory = true});
  std::optional<at::Tensor> batch = *loader->begin();
  const at::Tensor copy = batch->to(fake::device(), true);
  EXPECT_EQ(in_child([&] {
              const int64_t events = fake::counters().events_recorded;
              const int64_t unlocked = fake::counters().unregistered;
              batch.reset();
              loader.reset();
              require(fake::counters().events_recorded == events, "recorded an event");
              require(fake::counters().unregistered == unlocked, "unlocked memory");
            }),
            "");
  EXPECT_TRUE(is_batch(*batch, 0));
  EXPECT_TRUE(is_batch(copy, 0));
}

TEST_F(DeviceLoaderTest, StatsSayHowBatchesArePinned) {
  DataLoader loader(Counting{4}, {.pin_memory = true});
  std::ostringstream out;
  out << loader.stats();
  EXPECT_THAT(out.str(), HasSubstr("; batches pinned in place"));
}

}  // namespace
}  // namespace stoker
