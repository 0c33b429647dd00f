// SPDX-License-Identifier: BSD-3-Clause

// Datasets that are streams, through whole loaders. The orders are those of Python's DataLoader.

#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stoker/dataloader.h>
#include <stoker/datasets/chain.h>
#include <stoker/datasets/concat.h>
#include <stoker/datasets/stack.h>
#include <stoker/datasets/subset.h>
#include <stoker/datasets/transformed.h>
#include <sys/mman.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "datasets.h"
#include "process_memory.h"
#include "processes.h"

namespace stoker {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

// Worker w's stream is 100 w, 100 w + 1, .. as many as it says.
struct PerWorker {
  std::vector<int64_t> lengths;

  struct Stream {
    int64_t next_number;
    int64_t left;
    std::optional<int64_t> next() {
      if (left == 0) return std::nullopt;
      --left;
      return next_number++;
    }
  };
  Stream stream() const {
    const int64_t id = worker_info().value().id;
    return {100 * id, lengths.at(static_cast<size_t>(id))};
  }
};

// 0, 1, .. in each worker.
struct Counter {
  int64_t count;

  struct Stream {
    int64_t count;
    int64_t at = 0;
    std::optional<int64_t> next() { return at == count ? std::nullopt : std::optional(at++); }
  };
  Stream stream() const { return {count}; }
  size_t size() const { return static_cast<size_t>(count); }
};

TEST(StreamsTest, WithoutWorkersIsTheStreamInBatches) {
  DataLoader loader(Counter{5}, {.batch_size = 2});
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_THAT(batches_of(loader), ElementsAre(Numbers{0, 1}, Numbers{2, 3}, Numbers{4}));
  }
}

TEST(StreamsTest, AnEmptyStreamIsAnEmptyEpoch) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Counter{0}, {.num_workers = workers});
    EXPECT_THAT(batches_of(loader), IsEmpty());
    EXPECT_THAT(batches_of(loader), IsEmpty());
  }
}

TEST(StreamsTest, BatchesComeFromTheWorkersByTurns) {
  DataLoader loader(PerWorker{{5, 2, 3}}, {.batch_size = 2, .num_workers = 3});
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_THAT(batches_of(loader), ElementsAre(Numbers{0, 1}, Numbers{100, 101}, Numbers{200, 201},
                                                Numbers{2, 3}, Numbers{202}, Numbers{4}));
  }
}

TEST(StreamsTest, AWorkerWhoseStreamEndedIsLeftOut) {
  for (const int64_t prefetch : {1, 2, 7}) {
    DataLoader loader(PerWorker{{1, 4, 0}},
                      {.batch_size = 1, .num_workers = 3, .prefetch_factor = prefetch});
    EXPECT_THAT(epoch_of(loader), ElementsAre(0, 100, 101, 102, 103)) << prefetch;
  }
}

TEST(StreamsTest, EachWorkerDropsItsOwnShortBatch) {
  DataLoader loader(PerWorker{{5, 4, 1}}, {.batch_size = 2, .num_workers = 3, .drop_last = true});
  EXPECT_THAT(batches_of(loader),
              ElementsAre(Numbers{0, 1}, Numbers{100, 101}, Numbers{2, 3}, Numbers{102, 103}));
}

TEST(StreamsTest, ShardGivesEachSampleOnce) {
  for (const int64_t workers : {0, 1, 2, 3}) {
    DataLoader loader(Counter{11},
                      {.batch_size = 2, .num_workers = workers, .shard = Shard::kSamples});
    EXPECT_THAT(epoch_of(loader), testing::UnorderedElementsAreArray(up_to(11))) << workers;
  }
  DataLoader two(Counter{7}, {.batch_size = 2, .num_workers = 2, .shard = Shard::kSamples});
  EXPECT_THAT(batches_of(two),
              ElementsAre(Numbers{0, 2}, Numbers{1, 3}, Numbers{4, 6}, Numbers{5}));
}

TEST(StreamsTest, ShardsOfBatchesAreTheBatchesOfNoWorkers) {
  for (const bool drop_last : {false, true}) {
    const auto run = [&](int64_t count, int64_t workers, int64_t prefetch) {
      DataLoaderOptions options{.batch_size = 3,
                                .num_workers = workers,
                                .drop_last = drop_last,
                                .shard = Shard::kBatches};
      if (workers > 0) options.prefetch_factor = prefetch;
      DataLoader loader(Counter{count}, options);
      auto batches = batches_of(loader);
      EXPECT_EQ(batches_of(loader), batches);
      EXPECT_EQ(batches.size(), loader.size());
      return batches;
    };
    for (const int64_t count : {0, 1, 3, 17, 18, 19}) {
      const auto alone = run(count, 0, 0);
      EXPECT_EQ(run(count, 1, 1), alone) << count;
      EXPECT_EQ(run(count, 2, 3), alone) << count;
      EXPECT_EQ(run(count, 4, 1), alone) << count;
    }
  }
}

TEST(StreamsTest, InTheOrderOfCompletionEachStillComesOnce) {
  DataLoader loader(
      Counter{50},
      {.batch_size = 3, .num_workers = 3, .in_order = false, .shard = Shard::kSamples});
  EXPECT_THAT(epoch_of(loader), testing::UnorderedElementsAreArray(up_to(50)));
}

// The batch of a slow worker stays in flight while those of the others come and go.
TEST(StreamsTest, OutOfOrderNoBatchIsForgottenForOthersThatOvertakeIt) {
  struct Uneven {
    struct Stream {
      int64_t at = 0;
      std::optional<int64_t> next() {
        const auto info = worker_info().value();
        if (at == 200) return std::nullopt;
        if (info.id == 0 && at == 3) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return info.id * 1000 + at++;
      }
    };
    Stream stream() const { return {}; }
  };
  DataLoader loader(Uneven{}, {.batch_size = 4,
                               .num_workers = 3,
                               .timeout = std::chrono::seconds(20),
                               .prefetch_factor = 1,
                               .in_order = false});
  EXPECT_EQ(epoch_of(loader).size(), 600u);
}

TEST(StreamsTest, ABatchSizeFarBeyondTheStreamTakesNoMemory) {
  for (const int64_t workers : {0, 1}) {
    const int64_t before = process_status(getpid(), "VmRSS:");
    DataLoader loader(Counter{50}, {.batch_size = 50'000'000, .num_workers = workers});
    EXPECT_EQ(epoch_of(loader), up_to(50));
    constexpr int64_t kHundredMegabytes = 100 << 10;
    EXPECT_LT(process_status(getpid(), "VmRSS:") - before, kHundredMegabytes);
    for (const pid_t worker : loader_processes(static_cast<size_t>(workers)).workers) {
      EXPECT_LT(process_status(worker, "VmRSS:") - before, kHundredMegabytes);
    }
  }
}

TEST(StreamsTest, AnEndlessStreamMayBeLeft) {
  DataLoader loader(Counter{-1}, {.batch_size = 2, .num_workers = 2});
  for (int epoch = 0; epoch < 2; ++epoch) {
    Numbers seen;
    for (auto& batch : loader) {
      for (const int64_t number : numbers(batch)) seen.push_back(number);
      if (seen.size() == 6) break;
    }
    EXPECT_THAT(seen, ElementsAre(0, 1, 0, 1, 2, 3));
  }
}

TEST(ChainDatasetTest, StreamsFollowEachOther) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(ChainDataset(Counter{2}, Counter{0}, Counter{3}),
                      {.batch_size = 2, .num_workers = workers, .shard = Shard::kSamples});
    EXPECT_EQ(loader.size(), 3u);
    for (int epoch = 0; epoch < 2; ++epoch) {
      EXPECT_THAT(epoch_of(loader), testing::UnorderedElementsAre(0, 1, 0, 1, 2)) << workers;
    }
  }
}

TEST(StreamsTest, TheSizeIsThatOfTheDataset) {
  EXPECT_EQ(DataLoader(Counter{11}, {.batch_size = 2}).size(), 6u);
  EXPECT_EQ(DataLoader(Counter{11}, {.batch_size = 2, .drop_last = true}).size(), 5u);
  const DataLoader unsized(PerWorker{{3}}, {.batch_size = 2});
  EXPECT_THROW(unsized.size(), std::logic_error);
}

TEST(StreamsTest, OptionsThatNeedIndicesAreRefused) {
  const auto text = [](DataLoaderOptions options) {
    return text_of<std::invalid_argument>([&] { DataLoader(Counter{3}, options); });
  };
  EXPECT_EQ(text({.shuffle = true}),
            "stoker: shuffle is true for a dataset that is a stream; shuffle in its stream()");
  EXPECT_EQ(text({.sampler = std::make_shared<SequentialSampler>(3)}),
            "stoker: a sampler is given for a dataset that is a stream, whose samples have no "
            "indices");
  EXPECT_EQ(
      text_of<std::invalid_argument>([] { DataLoader(Counting{3}, {.shard = Shard::kSamples}); }),
      "stoker: shard is given for a dataset with indices, which workers share anyway");
}

TEST(StreamsTest, AnEpochThatIsLeftDoesNotTouchTheNext) {
  DataLoader loader(PerWorker{{9, 9}}, {.batch_size = 2, .num_workers = 2});
  for (int i = 0; i < 3; ++i) {
    for (auto& batch : loader) {
      EXPECT_EQ(numbers(batch), (Numbers{0, 1}));
      break;
    }
  }
}

// Shuffled in stream(), noisy in next().
struct Random {
  struct Stream {
    at::Tensor order = at::randperm(12);
    int64_t at = 0;
    std::optional<int64_t> next() {
      if (at == 12) return std::nullopt;
      return order[at++].item<int64_t>() * 1000 + at::randint(1000, {1}).item<int64_t>();
    }
  };
  Stream stream() const { return {}; }
};

TEST(StreamsTest, RandomnessDependsOnTheSeedAndIsAlikeInAllWorkersStreams) {
  const auto run = [](int64_t workers, bool persistent) {
    DataLoader loader(Random{}, {.batch_size = 2,
                                 .num_workers = workers,
                                 .seed = 5,
                                 .persistent_workers = persistent,
                                 .shard = Shard::kSamples});
    Numbers all = epoch_of(loader);
    for (const int64_t number : epoch_of(loader)) all.push_back(number);
    return all;
  };
  EXPECT_EQ(run(2, true), run(2, false));
  Numbers alone = run(0, true);
  Numbers three = run(3, true);
  EXPECT_NE(Numbers(alone.begin(), alone.begin() + 12), Numbers(alone.begin() + 12, alone.end()));
  for (auto* half : {&alone, &three}) {
    std::sort(half->begin(), half->begin() + 12);
    std::sort(half->begin() + 12, half->end());
  }
  EXPECT_EQ(alone, three);
}

TEST(StreamsTest, ShardsOfBatchesHaveTheRandomnessOfNoWorkers) {
  const auto run = [](int64_t workers) {
    DataLoader loader(
        Random{}, {.batch_size = 5, .num_workers = workers, .seed = 5, .shard = Shard::kBatches});
    auto all = batches_of(loader);
    for (const Numbers& batch : batches_of(loader)) all.push_back(batch);
    return all;
  };
  const auto alone = run(0);
  EXPECT_EQ(run(1), alone);
  EXPECT_EQ(run(3), alone);
}

TEST(StreamsTest, AnExceptionNamesWorkerAndPlace) {
  struct Failing {
    struct Stream {
      int64_t at = 0;
      std::optional<int64_t> next() {
        if (at == 3) throw std::runtime_error("broken record");
        return at++;
      }
    };
    Stream stream() const { return {}; }
  };
  DataLoader loader(Failing{}, {.batch_size = 2, .num_workers = 1});
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto error = error_of(loader);
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("std::runtime_error at sample index 3: broken record"));
    EXPECT_EQ(error->facts().worker_id, 0);
  }
}

TEST(StreamsTest, WhatItsStateThrowsIsTold) {
  struct Failing {
    struct Stream {
      int64_t at = 0;
      std::optional<int64_t> next() { return at < 64 ? std::optional(at++) : std::nullopt; }
      StateDict state_dict() const {
        if (at >= 16) throw std::runtime_error("no state");
        return {};
      }
      void load_state_dict(const StateDict&) {}
    };
    Stream stream() const { return {}; }
  };
  for (const int64_t batch_size : {8, 5}) {  // behind a full batch
    DataLoader loader(Failing{}, {.batch_size = batch_size, .num_workers = 1});
    Numbers seen;
    const std::string text = text_of<WorkerError>([&] {
      for (auto& batch : loader) {
        for (const int64_t number : numbers(batch)) seen.push_back(number);
      }
    });
    EXPECT_THAT(text, HasSubstr("std::runtime_error: no state"));
    EXPECT_EQ(seen, up_to(batch_size == 8 ? 8 : 15));
  }
}

// The stream of worker 0 is ended at its sample 4, once.
struct DiesOnce {
  std::atomic<int>* lives;

  struct Stream {
    std::atomic<int>* lives;
    int64_t at = 0;
    std::optional<int64_t> next() {
      if (at == 4 && worker_info().value().id == 0 && lives->fetch_sub(1) > 0) {
        kill(getpid(), SIGKILL);
      }
      if (at == 10) return std::nullopt;
      return worker_info().value().id * 100 + at++;
    }
  };
  Stream stream() const { return {lives}; }
};

class DyingStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    void* const memory =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lives_ = new (memory) std::atomic<int>(1);
  }
  void TearDown() override { munmap(lives_, 4096); }
  std::atomic<int>* lives_ = nullptr;
};

TEST_F(DyingStreamTest, AReplacementGoesOnWithTheStream) {
  DataLoader loader(DiesOnce{lives_}, {.batch_size = 2, .num_workers = 2, .max_restarts = 1});
  const auto batches = batches_of(loader);
  EXPECT_EQ(loader.stats().restarts, 1);
  DataLoader undisturbed(DiesOnce{lives_}, {.batch_size = 2, .num_workers = 2});
  EXPECT_EQ(batches, batches_of(undisturbed));
}

TEST_F(DyingStreamTest, WithoutOneTheBatchesBeforeAreDelivered) {
  DataLoader loader(DiesOnce{lives_}, {.batch_size = 2, .num_workers = 2});
  Numbers seen;
  EXPECT_THAT(text_of<WorkerError>([&] {
                for (auto& batch : loader) {
                  for (const int64_t number : numbers(batch)) seen.push_back(number);
                }
              }),
              HasSubstr("killed by signal 9 (Killed) at sample index 4"));
  EXPECT_THAT(seen, ElementsAre(0, 1, 100, 101, 2, 3, 102, 103));
}

// Counts in its state how often it was asked to go on from one.
struct Stateful {
  int64_t count;

  struct Stream {
    int64_t count;
    int64_t at = 0;
    int64_t loads = 0;
    std::optional<int64_t> next() {
      return at == count ? std::nullopt : std::optional(1000 * loads + at++);
    }
    StateDict state_dict() const {
      StateDict state;
      state.set("at", at);
      return state;
    }
    void load_state_dict(const StateDict& state) {
      at = state.integer("at");
      ++loads;
    }
  };
  Stream stream() const { return {count}; }
};

TEST(ResumedStreamsTest, GoOnWhereTheyWere) {
  for (const auto& [workers, shard] : {std::pair{0, Shard::kSamples},
                                       {1, Shard::kSamples},
                                       {3, Shard::kSamples},
                                       {0, Shard::kBatches},
                                       {3, Shard::kBatches}}) {
    const DataLoaderOptions options{
        .batch_size = 2, .num_workers = workers, .seed = 3, .shard = shard};
    DataLoader undisturbed(Random{}, options);
    const auto first = batches_of(undisturbed);
    const auto second = batches_of(undisturbed);
    for (size_t taken = 1; taken <= first.size(); ++taken) {
      DataLoader loader(Random{}, options);
      auto batch = loader.begin();
      for (size_t i = 1; i < taken; ++i) ++batch;
      DataLoader other(Random{}, options);
      other.load_state_dict(StateDict::from_json(loader.state_dict().to_json()));
      auto rest = batches_of(other);
      if (taken == first.size()) {  // nothing was left of it
        EXPECT_EQ(rest, second) << workers;
        continue;
      }
      const auto left = static_cast<std::ptrdiff_t>(taken);
      EXPECT_THAT(rest, ElementsAreArray(first.begin() + left, first.end())) << workers;
      EXPECT_EQ(batches_of(other), second) << workers;
    }
  }
}

TEST(ResumedStreamsTest, AStreamThatTellsWhereItIsSkipsNothing) {
  for (const int64_t workers : {0, 2}) {
    const DataLoaderOptions options{
        .batch_size = 2, .num_workers = workers, .shard = Shard::kSamples};
    DataLoader loader(Stateful{9}, options);
    auto batch = loader.begin();
    ++batch;
    DataLoader other(Stateful{9}, options);
    other.load_state_dict(loader.state_dict());
    const Numbers rest = epoch_of(other);
    if (workers == 0) {
      EXPECT_THAT(rest, ElementsAre(1004, 1005, 1006, 1007, 1008));
    } else {
      EXPECT_THAT(rest, ElementsAre(1004, 1006, 1005, 1007, 1008));
    }
  }
}

TEST(ResumedStreamsTest, SoDoesOneWhoseBatchesAreShared) {
  const DataLoaderOptions options{.batch_size = 2, .num_workers = 2, .shard = Shard::kBatches};
  DataLoader loader(Stateful{9}, options);
  auto batch = loader.begin();
  ++batch;
  ++batch;
  DataLoader other(Stateful{9}, options);
  other.load_state_dict(loader.state_dict());
  EXPECT_THAT(batches_of(other), ElementsAre(Numbers{1006, 1007}, Numbers{1008}));
}

TEST(ResumedStreamsTest, AStateOfAnotherNumberOfWorkersIsRefused) {
  DataLoader one(Counter{4}, {.num_workers = 1});
  DataLoader none(Counter{4});
  EXPECT_EQ(text_of<std::invalid_argument>([&] { none.load_state_dict(one.state_dict()); }),
            "stoker: the state is one of a loader whose num_workers is 1, and here it is 0");
}

// The epoch that the dataset was told.
struct KnowsEpoch {
  int64_t epoch = -1;
  int64_t times = 0;

  void set_epoch(int64_t now) {
    epoch = now;
    ++times;
  }
  int64_t get(size_t) const { return epoch * 10 + times; }
  size_t size() const { return 8; }
};

TEST(SetEpochTest, ReachesPersistentWorkersOncePerEpoch) {
  for (const int64_t workers : {0, 1}) {
    DataLoader loader(KnowsEpoch{}, {.batch_size = 2, .num_workers = workers});
    EXPECT_EQ(epoch_of(loader), Numbers(8, 1)) << workers;
    EXPECT_EQ(epoch_of(loader), Numbers(8, 12)) << workers;
    EXPECT_EQ(epoch_of(loader), Numbers(8, 23)) << workers;
  }
}

TEST(SetEpochTest, IsThatOfAResumedEpoch) {
  DataLoader loader(KnowsEpoch{}, {.batch_size = 2});
  epoch_of(loader);
  auto batch = loader.begin();
  DataLoader other(KnowsEpoch{}, {.batch_size = 2, .num_workers = 1});
  other.load_state_dict(loader.state_dict());
  EXPECT_EQ(epoch_of(other), Numbers(6, 11));
}

TEST(SetEpochTest, ReachesTheDatasetsThatADatasetIsMadeOf) {
  const auto same = [](std::tuple<int64_t, int64_t> epochs) { return epochs; };
  for (const int64_t workers : {0, 1}) {
    DataLoader loader(
        TransformedDataset(StackDataset(Subset(KnowsEpoch{}, {1, 2}),
                                        Subset(ConcatDataset(KnowsEpoch{}, KnowsEpoch{}), {0, 9})),
                           same),
        {.batch_size = 2, .num_workers = workers});
    for (const int64_t expected : {1, 12}) {
      for (auto& [first, second] : loader) {
        EXPECT_EQ(numbers(first), Numbers(2, expected));
        EXPECT_EQ(numbers(second), Numbers(2, expected));
      }
    }
  }
}

TEST(SetEpochTest, ReachesStreams) {
  struct Stream {
    int64_t epoch;
    int64_t left = 2;
    std::optional<int64_t> next() { return left-- > 0 ? std::optional(epoch) : std::nullopt; }
  };
  struct Epochs {
    int64_t epoch = -1;
    void set_epoch(int64_t now) { epoch = now; }
    Stream stream() const { return {epoch}; }
  };
  DataLoader loader(Epochs{}, {.num_workers = 1});
  EXPECT_THAT(epoch_of(loader), ElementsAre(0, 0));
  EXPECT_THAT(epoch_of(loader), ElementsAre(1, 1));
}

}  // namespace
}  // namespace stoker
