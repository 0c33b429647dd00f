// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/stoker.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device_test.h"
#include "processes.h"

namespace stoker {

struct Picture {
  at::Tensor pixels, box;
  std::string name;
};
template <>
struct SampleTraits<Picture> {
  static auto fields(const Picture& picture) {
    return std::tie(picture.pixels, picture.box, picture.name);
  }
};

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

at::Tensor number(int64_t value) { return at::full({1}, value, at::kLong); }

// The first number of each tensor, in order.
template <class Batch>
Numbers firsts(Batch& batch) {
  Numbers all;
  for (const at::Tensor* tensor : detail::BatchTensors()(batch)) {
    all.push_back(tensor->flatten()[0].item<int64_t>());
  }
  return all;
}

class DevicePrefetcherTest : public DeviceTest {};

TEST_F(DevicePrefetcherTest, FindsTheTensorsOfEveryKindOfBatch) {
  std::pair<at::Tensor, std::tuple<at::Tensor, int64_t, std::string>> nested{number(1),
                                                                             {number(2), 7, "x"}};
  EXPECT_THAT(firsts(nested), ElementsAre(1, 2));
  std::vector<std::array<at::Tensor, 2>> rows{{number(1), number(2)}, {number(3), number(4)}};
  EXPECT_THAT(firsts(rows), ElementsAre(1, 2, 3, 4));
  std::map<std::string, at::Tensor> sorted{{"b", number(2)}, {"a", number(1)}};
  EXPECT_THAT(firsts(sorted), ElementsAre(1, 2));
  std::unordered_map<int, at::Tensor> hashed{{3, number(3)}, {1, number(1)}, {2, number(2)}};
  EXPECT_THAT(firsts(hashed), ElementsAre(1, 2, 3));
  std::optional<at::Tensor> some = number(5), none;
  EXPECT_THAT(firsts(some), ElementsAre(5));
  EXPECT_THAT(firsts(none), IsEmpty());
  Picture picture{number(1), number(2), "cat"};
  EXPECT_THAT(firsts(picture), ElementsAre(1, 2));
  std::vector<std::string> words{"a"};
  EXPECT_THAT(firsts(words), IsEmpty());
}

TEST_F(DevicePrefetcherTest, AnyRangeOfBatchesWillDo) {
  std::vector<Picture> batches{{number(1), number(2), "a"}, {number(3), number(4), "b"}};
  DevicePrefetcher prefetcher(batches, fake::device(1));
  EXPECT_EQ(prefetcher.size(), 2u);
  EXPECT_EQ(prefetcher.device(), fake::device(1));
  for (int epoch = 0; epoch < 2; ++epoch) {  // the source keeps its tensors
    Numbers seen;
    std::string names;
    for (auto& batch : prefetcher) {
      EXPECT_EQ(batch.box.device(), fake::device(1));
      names += batch.name;
      for (const int64_t value : firsts(batch)) seen.push_back(value);
    }
    EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(names, "ab");
  }
}

// Tensors that nobody watches are held until they are copied.
TEST_F(DevicePrefetcherTest, BatchesOfMemoryOfTheirOwnAreHeldWhileTheyAreCopied) {
  struct Source {
    struct Iterator {
      Iterator& operator++() {
        value = number(++count).pin_memory();
        return *this;
      }
      void operator++(int) { ++*this; }
      at::Tensor& operator*() const { return value; }
      bool operator==(std::default_sentinel_t) const { return count == 6; }
      int64_t count = 0;
      mutable at::Tensor value = number(0).pin_memory();
    };
    Iterator begin() { return {}; }
    std::default_sentinel_t end() { return {}; }
  } source;
  DevicePrefetcher prefetcher(source, fake::device(), {.depth = 3});
  const c10::Stream side = fake::last_new_stream();
  fake::hold(side);
  std::vector<at::Tensor> all;
  auto it = prefetcher.begin();
  for (; all.size() < 4; ++it) all.push_back(*it);
  fake::let_go(side);
  for (; it != prefetcher.end(); ++it) all.push_back(*it);
  EXPECT_THAT(numbers(at::cat(all).cpu()), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(DevicePrefetcherTest, ItsEndInTheMiddleOfCopiesIsHarmless) {
  const c10::Stream consumer = fake::current_stream();
  fake::set_delay(std::chrono::milliseconds(2));
  at::Tensor kept;
  {
    std::vector<at::Tensor> batches;
    for (int64_t i = 0; i < 8; ++i) batches.push_back(number(i).pin_memory());
    DevicePrefetcher prefetcher(batches, fake::device(), {.depth = 4});
    auto it = prefetcher.begin();
    ++it;
    kept = *it;
  }
  fake::set_delay(std::chrono::microseconds(0));
  EXPECT_EQ(kept.item<int64_t>(), 1);
  fake::finish(consumer);
}

TEST_F(DevicePrefetcherTest, DepthIsHowManyAreOnTheirWay) {
  std::vector<at::Tensor> batches;
  for (int64_t i = 0; i < 10; ++i) batches.push_back(number(i));
  for (const int64_t depth : {1, 2, 5}) {
    DevicePrefetcher prefetcher(batches, fake::device(), {.depth = depth});
    auto it = prefetcher.begin();
    const int64_t before = fake::counters().copies_to_device;
    ++it;  // the first batch was not to wait for others
    EXPECT_EQ(fake::counters().copies_to_device - before, depth);
    ++it;
    EXPECT_EQ(fake::counters().copies_to_device - before, depth + 1);
  }
}

TEST_F(DevicePrefetcherTest, ChangesAreMadeOnTheDevice) {
  using Batch = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  std::vector<Batch> batches{
      {at::arange(24, at::kFloat).view({1, 2, 3, 4}), number(7), at::ones({2}, at::kByte)}};
  DevicePrefetcher prefetcher(
      batches, fake::device(),
      {.dtype = at::kHalf,
       .memory_format = at::MemoryFormat::ChannelsLast,
       .transform = [](size_t i, at::Tensor t) { return i == 2 ? t.to(at::kFloat) : t; }});
  auto it = prefetcher.begin();
  const auto& [pixels, label, bytes] = *it;
  EXPECT_EQ(pixels.scalar_type(), at::kHalf);
  EXPECT_TRUE(pixels.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::equal(pixels.cpu().to(at::kFloat), std::get<0>(batches[0])));
  EXPECT_EQ(label.scalar_type(), at::kLong);
  EXPECT_EQ(bytes.scalar_type(), at::kFloat);
  EXPECT_EQ(bytes.device(), fake::device());
}

// .. and asynchronously, where the operators are: nothing is staged or converted on the host.
TEST_F(DevicePrefetcherTest, ChangesDoNotSpoilTheCopy) {
  std::vector<at::Tensor> batches{at::ones({2, 3, 4, 4}).pin_memory()};
  DevicePrefetcher prefetcher(
      batches, fake::device(),
      {.dtype = at::kDouble, .memory_format = at::MemoryFormat::ChannelsLast});
  const int64_t async = fake::counters().async_copies, syncs = fake::counters().syncs;
  auto it = prefetcher.begin();
  EXPECT_EQ(fake::counters().async_copies, async + 1);
  EXPECT_EQ(fake::counters().syncs, syncs);
  EXPECT_EQ(it->sum().item<double>(), 96);
}

TEST_F(DevicePrefetcherTest, TensorsMayStayOnTheHost) {
  DataLoader loader(
      Made{4, [](size_t i) { return std::pair(number(1), number(static_cast<int64_t>(i))); }},
      {.batch_size = 2, .pin_memory = true});
  DevicePrefetcher prefetcher(loader, fake::device(), {.keep_on_host = {1}});
  Numbers labels;
  for (auto& [there, here] : prefetcher) {
    EXPECT_EQ(there.device(), fake::device());
    EXPECT_TRUE(here.device().is_cpu());
    EXPECT_TRUE(here.is_pinned());
    for (const int64_t label : numbers(here)) labels.push_back(label);
  }
  EXPECT_EQ(labels, up_to(4));
}

TEST_F(DevicePrefetcherTest, ATensorThatIsThereAlreadyIsHandedOn) {
  std::vector<at::Tensor> batches{number(3).to(fake::device())};
  DevicePrefetcher prefetcher(batches, fake::device());
  auto it = prefetcher.begin();
  EXPECT_EQ(it->data_ptr(), batches[0].data_ptr());
}

TEST_F(DevicePrefetcherTest, TheCpuIsAPlainPassThrough) {
  DataLoader loader(rows_of(4, 6), {.batch_size = 2});
  const int64_t uses = fake::counters().stream_uses, events = fake::counters().events_recorded;
  DevicePrefetcher prefetcher(loader, at::Device(at::kCPU, 0));
  EXPECT_EQ(prefetcher.device(), at::Device(at::kCPU));
  int64_t first = 0;
  for (auto& batch : prefetcher) {
    EXPECT_TRUE(is_batch(batch, first));
    first += 2;
    EXPECT_EQ(loader.stats().epoch.samples, first);  // none ahead
  }
  EXPECT_EQ(first, 6);
  EXPECT_EQ(fake::counters().stream_uses, uses);
  EXPECT_EQ(fake::counters().events_recorded, events);
}

TEST_F(DevicePrefetcherTest, OnTheCpuChangesAreTheSame) {
  std::vector<at::Tensor> batches{at::ones({1, 2, 3, 3})};
  DevicePrefetcher prefetcher(batches, at::kCPU,
                              {.dtype = at::kDouble,
                               .memory_format = at::MemoryFormat::ChannelsLast,
                               .transform = [](size_t, at::Tensor t) { return t.mul(2); }});
  const at::Tensor batch = *prefetcher.begin();
  EXPECT_EQ(batch.scalar_type(), at::kDouble);
  EXPECT_TRUE(batch.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(batch.sum().item<double>(), 36);
}

// Programs change the current stream, from batch to batch.
TEST_F(DevicePrefetcherTest, EachBatchIsOrderedForTheStreamThatIsCurrentThen) {
  DataLoader loader(rows_of(8, 12), {.batch_size = 2, .pin_memory = true});
  DevicePrefetcher prefetcher(loader, fake::device());
  const c10::Stream side = fake::last_new_stream();
  const std::array<c10::Stream, 2> consumers{fake::new_stream(), fake::new_stream()};
  auto it = prefetcher.begin();
  for (int64_t i = 1; i < 6; ++i) {
    const c10::Stream consumer = consumers.at(static_cast<size_t>(i) % 2);
    const c10::StreamGuard guard(consumer);
    fake::hold(side);
    ++it;
    const LateLook look(*it, consumer);
    std::this_thread::sleep_for(2ms);
    fake::let_go(side);
    fake::finish(consumer);
    ASSERT_EQ(look.value(), 2 * i);
  }
}

TEST_F(DevicePrefetcherTest, LeavingAnEpochLeavesTheNextOneRight) {
  DataLoader loader(rows_of(4, 20), {.batch_size = 2, .num_workers = 2, .pin_memory = true});
  DevicePrefetcher prefetcher(loader, fake::device(), {.depth = 3});
  for (int64_t epoch = 0; epoch < 8; ++epoch) {
    int64_t first = 0;
    for (auto& batch : prefetcher) {
      ASSERT_TRUE(is_batch(batch, first));
      first += 2;
      if (first > 2 * epoch) break;
    }
  }
  Numbers seen;
  for (auto& batch : prefetcher) seen.push_back(batch[0][0].item<int64_t>());
  EXPECT_THAT(seen, ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 18));
}

TEST_F(DevicePrefetcherTest, AnErrorOfTheLoaderComesInItsPlaceAndStays) {
  const auto dataset = Made{20, [](size_t i) {
                              if (i == 7) throw std::runtime_error("no such file");
                              return number(static_cast<int64_t>(i));
                            }};
  DataLoader loader(dataset, {.batch_size = 2, .num_workers = 1});
  DevicePrefetcher prefetcher(loader, fake::device(), {.depth = 3});
  auto it = prefetcher.begin();
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*it)[0][0].item<int64_t>(), 2 * i);
    if (i < 2) ++it;
  }
  EXPECT_THROW(++it, WorkerError);
  EXPECT_THROW(++it, WorkerError);
  EXPECT_EQ((*prefetcher.begin())[0][0].item<int64_t>(), 0);
}

TEST_F(DevicePrefetcherTest, AnErrorInATransformComesInItsPlaceAndStays) {
  std::vector<at::Tensor> batches{number(0), number(1), number(2)};
  DevicePrefetcher prefetcher(batches, fake::device(), {.transform = [](size_t, at::Tensor t) {
                                if (t.item<int64_t>() == 1) throw std::domain_error("odd");
                                return t;
                              }});
  auto it = prefetcher.begin();
  EXPECT_EQ(it->item<int64_t>(), 0);
  EXPECT_THROW(++it, std::domain_error);
  EXPECT_THROW(++it, std::domain_error);
  EXPECT_EQ(prefetcher.begin()->item<int64_t>(), 0);
}

TEST_F(DevicePrefetcherTest, AnIteratorKnowsWhetherItsEpochIsOver) {
  std::vector<at::Tensor> batches{number(0), number(1)};
  std::optional<DevicePrefetcher<std::vector<at::Tensor>>> prefetcher;
  prefetcher.emplace(batches, fake::device());
  auto old = prefetcher->begin();
  auto it = prefetcher->begin();
  EXPECT_EQ(text_of<std::logic_error>([&] { ++old; }),
            "stoker: this iterator's epoch was ended by a later begin()");
  ++it;
  EXPECT_EQ(it->item<int64_t>(), 1);
  ++it;
  EXPECT_TRUE(it == prefetcher->end());
  ++it;
  EXPECT_TRUE(it == prefetcher->end());
  EXPECT_THROW(*it, std::out_of_range);
  auto last = prefetcher->begin();
  prefetcher.reset();
  EXPECT_EQ(last->item<int64_t>(), 0);
  EXPECT_EQ(text_of<std::logic_error>([&] { ++last; }),
            "stoker: the prefetcher of this iterator is gone");
}

using OfPictures = DevicePrefetcher<std::vector<Picture>>;
static_assert(!std::is_copy_constructible_v<OfPictures>);
static_assert(!std::is_copy_assignable_v<OfPictures>);
static_assert(std::is_nothrow_move_constructible_v<OfPictures>);

TEST_F(DevicePrefetcherTest, AnIteratorFollowsItsPrefetcher) {
  std::vector<at::Tensor> batches{number(1), number(2), number(3)};
  DevicePrefetcher prefetcher(batches, fake::device());
  auto it = prefetcher.begin();
  DevicePrefetcher moved = std::move(prefetcher);
  EXPECT_EQ((++it)->item<int64_t>(), 2);
  DevicePrefetcher assigned(batches, fake::device());
  assigned = std::move(moved);
  EXPECT_EQ((++it)->item<int64_t>(), 3);
  EXPECT_EQ(++it, assigned.end());
  EXPECT_EQ(assigned.begin()->item<int64_t>(), 1);
}

TEST_F(DevicePrefetcherTest, APrefetcherThatWasMovedFromSaysSo) {
  std::vector<at::Tensor> batches{number(1)};
  DevicePrefetcher prefetcher(batches, fake::device());
  const DevicePrefetcher moved = std::move(prefetcher);
  const auto expect_told = [](auto use) {
    EXPECT_EQ(text_of<std::logic_error>(use),
              "stoker: this prefetcher was moved from; use the one it was moved to");
  };
  expect_told([&] { prefetcher.begin(); });
  expect_told([&] { prefetcher.size(); });
  expect_told([&] { prefetcher.device(); });
}

TEST_F(DevicePrefetcherTest, BadOptionsAreRefused) {
  std::vector<at::Tensor> batches{number(0)};
  const auto text = [&](at::Device device, DevicePrefetcherOptions options) {
    return text_of<std::invalid_argument>([&] {
      DevicePrefetcher prefetcher(batches, device, std::move(options));
      *prefetcher.begin();
    });
  };
  EXPECT_EQ(text(fake::device(), {.depth = 0}), "stoker: depth is 0; it must be 1 or more");
  EXPECT_EQ(text(fake::device(), {.dtype = at::kInt}),
            "stoker: dtype is Int; it must be a floating-point one, as only such tensors are "
            "converted; for others give a transform");
  EXPECT_EQ(text(fake::device(), {.memory_format = at::MemoryFormat::Preserve}),
            "stoker: memory_format must be ChannelsLast or ChannelsLast3d; leave it out for any "
            "other");
  EXPECT_EQ(text(fake::device(), {.keep_on_host = {3}}),
            "stoker: keep_on_host names tensor 3 of a batch that has 1");
  EXPECT_EQ(text(fake::device(7), {}),
            "stoker: device is fake:7, but libtorch finds 2 such devices here; give one that is "
            "there, or cpu");
  EXPECT_EQ(text(at::kMeta, {}),
            "stoker: device is meta, but libtorch finds 0 such devices here; give one that is "
            "there, or cpu");
  batches[0] = number(1).to_sparse();
  EXPECT_EQ(text(fake::device(), {}),
            "stoker: tensor 0 of the batch has no storage (a sparse one?) and cannot be copied "
            "ahead; name it in keep_on_host");
}

}  // namespace
}  // namespace stoker
