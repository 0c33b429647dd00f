// SPDX-License-Identifier: BSD-3-Clause
// The whole life of batches - publish, claim, fill, finish, collate, complete - with threads for
// workers, on the heap: what a thread sanitizer sees.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "datasets.h"
#include "memory/futex.h"
#include "slot_memory.h"
#include "support.h"

namespace stoker::detail {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Batch k holds the indices from k * kStride on.
constexpr int64_t kStride = 100;
constexpr int64_t kThrowing = 11;     // every 11th batch: its second sample throws
constexpr int64_t kMismatching = 13;  // every 13th batch: its second sample has another shape
constexpr int64_t kStopped = 7;       // every 7th batch is cancelled

// Shapes change from batch to batch, for a while not at all, and are large now and then.
int64_t length_of(int64_t batch) {
  if (batch % 40 < 20) return 3;
  return batch % 5 == 0 ? 20'000 : batch % 4;
}

using Sample = std::tuple<int64_t, at::Tensor, std::string>;

Sample sample_at(size_t index) {
  const auto i = static_cast<int64_t>(index);
  const int64_t batch = i / kStride;
  const bool second = i % kStride == 1;
  if (second && batch % kThrowing == 0) throw std::runtime_error("no " + std::to_string(i));
  const int64_t more = second && batch % kMismatching == 0 ? 1 : 0;
  return {i, at::full({length_of(batch) + more}, i, at::kInt), std::string(index % 50, 's')};
}

// As worker_loop.cpp does it, within the program's own process.
class WorkerThread {
 public:
  WorkerThread(Control& control, uint32_t id, uint32_t at_most)
      : control_(control),
        id_(id),
        at_most_(at_most),
        fetcher_(Made(SIZE_MAX, sample_at)),
        filler_(fetcher_, id, control.num_workers()),
        thread_([this] { loop(); }) {}
  void join() { thread_.join(); }

 private:
  void loop() {
    WorkerRecord& me = control_.worker(id_);
    while (control_.stop().load() == 0) {
      const uint32_t seen = control_.published();
      const auto claim =
          control_.claim(me, [this](uint32_t rest, uint32_t) { return std::min(rest, at_most_); });
      if (claim) {
        work(*claim, me);
      } else {
        sleep(seen);
      }
    }
  }
  void work(const Claim& claim, WorkerRecord& me) {
    const Slot slot = control_.slot(claim.slot);
    if (control_.has_sleepers()) futex_wake(control_.published_word(), 1);
    const Hand hand = filler_.hand(slot, claim.sequence);
    if (!slot.finish(hand, filler_.fill(slot, claim.sequence, claim.rows, me.progress))) return;
    const SlotStatus status = filler_.complete(slot);
    if (control_.complete(slot, claim.sequence, status)) futex_wake(control_.events_word(), 1);
  }
  void sleep(uint32_t seen) {
    control_.begin_sleep();
    if (control_.published() == seen && control_.stop().load() == 0) {
      futex_wait(control_.published_word(), seen, 1s);
    }
    control_.end_sleep();
  }

  Control& control_;
  uint32_t id_;
  uint32_t at_most_;
  MapFetcher<Made<Sample (*)(size_t)>> fetcher_;
  Filler filler_;
  std::thread thread_;
};

// The program's side: batches in order, slots used again as soon as they are free.
class SlotLifeTest : public testing::TestWithParam<uint32_t> {
 protected:
  static constexpr uint32_t kWorkers = 4;
  static constexpr uint32_t kSlots = 5;

  SlotLifeTest() : control_(memory_.control()), random_(test_seed()) {
    for (uint32_t id = 0; id < kWorkers; ++id) {
      workers_.push_back(std::make_unique<WorkerThread>(control_, id, GetParam()));
    }
    free_.resize(kSlots);
    std::iota(free_.begin(), free_.end(), 0);
  }
  ~SlotLifeTest() override {
    control_.stop() = 1;
    futex_wake(control_.published_word(), kWorkers);
    for (auto& worker : workers_) worker->join();
  }

  struct Published {
    int64_t batch;
    uint32_t sequence;
    uint32_t slot;
  };

  void publish(int64_t batch) {
    const uint32_t id = free_.back();
    free_.pop_back();
    const auto n = std::uniform_int_distribution<size_t>(2, 40)(random_);
    std::vector<int64_t> indices(batch % 3 == 0 ? 2 : n);
    std::iota(indices.begin(), indices.end(), batch * kStride);
    in_flight_.push_back({batch, control_.published(), id});
    control_.slot(id).publish(indices, control_.published(), {.epoch_seed = 1});
    control_.publish(id);
    if (control_.has_sleepers()) futex_wake(control_.published_word(), 1);
  }
  SlotStatus wait_for(const Published& one) {
    control_.want(one.sequence);
    for (;;) {
      const uint32_t seen = control_.events_word().load();
      const auto status = control_.slot(one.slot).header().status.load();
      if (status != SlotStatus::kOpen) return status;
      futex_wait(control_.events_word(), seen, 100ms);
    }
  }
  void take_oldest() {
    const Published one = in_flight_.front();
    in_flight_.pop_front();
    const Slot slot = control_.slot(one.slot);
    const bool stopped = one.batch % kStopped == 0;
    if (stopped) cancel_rest(slot);
    const SlotStatus status = wait_for(one);
    if (!stopped) check(slot, one.batch, status);
    free_.insert(one.batch % 2 == 0 ? free_.begin() : free_.end(), one.slot);
  }
  static void check(Slot slot, int64_t batch, SlotStatus status) {
    if (batch % kThrowing == 0) {
      ASSERT_EQ(status, SlotStatus::kFailed) << batch;
      EXPECT_EQ(failure_of(slot).text, "no " + std::to_string(batch * kStride + 1));
    } else if (batch % kMismatching == 0) {
      ASSERT_EQ(status, SlotStatus::kFailed) << batch;
      EXPECT_THAT(
          failure_of(slot).text,
          HasSubstr("cannot collate field [1] of samples " + std::to_string(batch * kStride) +
                    " and " + std::to_string(batch * kStride + 1) + ": Int ["));
    } else {
      ASSERT_EQ(status, SlotStatus::kReady) << batch;
      check_rows(slot, batch);
    }
  }
  static void check_rows(Slot slot, int64_t batch) {
    const auto numbers = column<int64_t>(slot, 0);
    const auto tensors = column<int32_t>(slot, 1);
    const auto texts = strings(slot, 2);
    const auto length = static_cast<size_t>(length_of(batch));
    ASSERT_EQ(tensors.size(), length * numbers.size());
    for (size_t row = 0; row < numbers.size(); ++row) {
      const int64_t index = batch * kStride + static_cast<int64_t>(row);
      ASSERT_EQ(numbers[row], index);
      ASSERT_EQ(texts[row], std::string(static_cast<size_t>(index % 50), 's')) << index;
      const auto begin = tensors.begin() + static_cast<int64_t>(row * length);
      ASSERT_EQ(std::count(begin, begin + static_cast<int64_t>(length), index),
                static_cast<int64_t>(length))
          << index;
    }
  }

  HeapSlots memory_{kWorkers, kSlots, 16 << 20};  // room for the longest batch, twice
  Control& control_;
  std::mt19937_64 random_;
  std::vector<uint32_t> free_;
  std::deque<Published> in_flight_;
  std::vector<std::unique_ptr<WorkerThread>> workers_;
};

TEST_P(SlotLifeTest, EveryBatchIsWhatItsIndicesSay) {
  constexpr int64_t kBatches = 600;
  int64_t next = 1;
  while (next <= kBatches || !in_flight_.empty()) {
    if (next <= kBatches && !free_.empty()) {
      publish(next++);
    } else {
      take_oldest();
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RowsAtOnce, SlotLifeTest, testing::Values(1, 3, 1000),
                         testing::PrintToStringParamName());

// Batches of one and of two rows by turns in one slot, so that whoever looks at a batch that is
// over sees the wrong number of rows: a worker asleep between any two steps of a claim, or between
// counting its row and finding out whether it was the last.
TEST(SlotReuseTest, EachRowIsClaimedAndEachBatchCompletedOnce) {
  constexpr uint32_t kBatches = 200'000;
  HeapSlots memory(4, 1);
  Control& control = memory.control();
  const Slot slot = control.slot(0);
  const auto rows_of = [](uint32_t sequence) { return 1 + sequence % 2; };
  const auto publish_next = [&] {
    slot.publish(Numbers(rows_of(control.published())), control.published(), {});
    control.publish(0);
  };
  std::atomic<uint32_t> no_such_row{0}, completed_twice{0};
  const auto work = [&](uint32_t id) {
    while (control.published() < kBatches && no_such_row == 0 && completed_twice == 0) {
      const auto claim = control.claim(control.worker(id), [](uint32_t, uint32_t) { return 1u; });
      if (!claim) continue;
      if (claim->rows.first >= rows_of(claim->sequence)) no_such_row = claim->sequence;
      const Hand me = Slot::worker(claim->sequence, id);
      if (slot.own(claim->rows.first, me)) {
        slot.settle(claim->rows.first, me, RowState::kInRows);
      } else {
        no_such_row = claim->sequence;
      }
      if (!slot.finish(me, 1)) continue;
      const uint64_t now = slot.header().ticket.load() >> 32;
      if (now == claim->sequence) {
        publish_next();
      } else {
        completed_twice = claim->sequence;
      }
    }
  };
  publish_next();
  std::vector<std::thread> threads;
  for (uint32_t id = 0; id < 4; ++id) threads.emplace_back(work, id);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(no_such_row, 0u) << "a row was claimed that this batch does not have";
  EXPECT_EQ(completed_twice, 0u) << "two workers took themselves for the last of this batch";
}

}  // namespace
}  // namespace stoker::detail
