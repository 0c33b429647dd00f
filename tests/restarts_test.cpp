// SPDX-License-Identifier: BSD-3-Clause

// Workers that die and are replaced: max_restarts and sample_timeout.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <sys/resource.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "datasets.h"
#include "processes.h"

namespace stoker {
namespace {

using testing::HasSubstr;

// 64 samples; a sample whose turns are not used up does the deed first.
template <class Deed>
auto deadly(std::vector<size_t> samples, int turns, Deed deed) {
  Shared<std::array<std::atomic<int>, 64>> times;
  return Made{64, [=](size_t index) {
                const bool is_deadly =
                    std::find(samples.begin(), samples.end(), index) != samples.end();
                if (is_deadly && (*times)[index]++ < turns) deed();
                return static_cast<int64_t>(index);
              }};
}

int overflow_the_stack(const volatile char* above) {
  volatile char frame[4096];
  frame[0] = *above;
  return getppid() == 0 ? 0 : overflow_the_stack(frame) + frame[0];
}

struct Deed {
  const char* name;
  void (*run)();
};
void PrintTo(const Deed& deed, std::ostream* out) { *out << deed.name; }

class RestartsTest : public testing::TestWithParam<Deed> {
 protected:
  RestartsTest() {
    getrlimit(RLIMIT_CORE, &cores_);
    const rlimit none{0, cores_.rlim_max};
    setrlimit(RLIMIT_CORE, &none);
  }
  ~RestartsTest() override { setrlimit(RLIMIT_CORE, &cores_); }

 private:
  rlimit cores_{};
};

TEST_P(RestartsTest, AWorkerThatDiesIsReplacedAndNothingIsLost) {
  for (const int64_t workers : {1, 3}) {
    DataLoader loader(deadly({17}, 1, GetParam().run),
                      {.batch_size = 8, .num_workers = workers, .max_restarts = 1});
    EXPECT_EQ(epoch_of(loader), up_to(64));
    EXPECT_EQ(loader.stats().restarts, 1);
    EXPECT_EQ(epoch_of(loader), up_to(64));
  }
}

INSTANTIATE_TEST_SUITE_P(Deeds, RestartsTest,
                         testing::Values(Deed{"Kill", [] { kill(getpid(), SIGKILL); }},
                                         Deed{"ExitZero", [] { std::exit(0); }},
                                         Deed{"ExitThree", [] { _exit(3); }},
                                         Deed{"Abort", [] { std::abort(); }},
                                         Deed{"TooMuchTime", [] { kill(getpid(), SIGXCPU); }},
                                         Deed{"Segfault", [] { std::raise(SIGSEGV); }},
                                         Deed{"StackOverflow", [] { overflow_the_stack("x"); }}),
                         [](const auto& of) { return std::string(of.param.name); });

const auto kill_self = [] { kill(getpid(), SIGKILL); };

TEST(RestartTest, ASampleThatEndsTwoWorkersIsReported) {
  DataLoader loader(deadly({17}, 2, kill_self),
                    {.batch_size = 8, .num_workers = 2, .max_restarts = 10});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().index, 17);
  EXPECT_EQ(error->facts().signal, SIGKILL);
  EXPECT_THAT(error->what(), HasSubstr("not replaced, since the same sample had ended a worker"));
  EXPECT_EQ(loader.stats().epoch.batches, 2);
  EXPECT_EQ(loader.stats().restarts, 1);
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

Numbers without(Numbers numbers, int64_t one) {
  std::erase(numbers, one);
  return numbers;
}

DataLoaderOptions handling(OnError on_error, int64_t workers) {
  return {.batch_size = 8, .num_workers = workers, .on_error = on_error, .max_restarts = 10};
}

TEST(DeadlySampleTest, IsSkippedLikeOneThatThrows) {
  for (const int64_t workers : {1, 3}) {
    DataLoader loader(deadly({17}, 1000, kill_self), handling(OnError::kSkip, workers));
    const Numbers first = epoch_of(loader);
    EXPECT_EQ(first, without(up_to(64), 17));
    EXPECT_EQ(loader.stats().restarts, 2);
    EXPECT_EQ(loader.stats().errors, 1);
    ASSERT_EQ(loader.stats().bad_samples.size(), 1u);
    EXPECT_EQ(loader.stats().bad_samples[0].index, 17);
    EXPECT_THAT(loader.stats().bad_samples[0].error,
                HasSubstr("was killed by signal 9 (Killed) at sample index 17"));
    EXPECT_THAT(loader.stats().bad_samples[0].error,
                HasSubstr("; the same sample had ended a worker before"));
    EXPECT_EQ(epoch_of(loader), first);
  }
}

TEST(DeadlySampleTest, IsReplacedByTheNextOfTheBatch) {
  for (const int64_t workers : {1, 3}) {
    DataLoader loader(deadly({17, 23}, 1000, kill_self), handling(OnError::kSubstitute, workers));
    Numbers expected = up_to(64);
    expected[17] = 18;
    expected[23] = 16;
    EXPECT_EQ(epoch_of(loader), expected);
    EXPECT_EQ(epoch_of(loader), expected);
  }
}

// Of 16 .. 19, 17 throws, and the two behind it end each worker.
TEST(DeadlySampleTest, IsNotTakenForAnotherEither) {
  const auto dataset = Made{20, [](size_t index) {
                              if (index == 17) throw std::runtime_error("broken");
                              if (index == 18 || index == 19) kill_self();
                              return static_cast<int64_t>(index);
                            }};
  auto options = handling(OnError::kSubstitute, 2);
  options.batch_size = 4;
  DataLoader loader(dataset, options);
  Numbers expected = up_to(20);
  expected[17] = expected[18] = expected[19] = 16;
  EXPECT_EQ(epoch_of(loader), expected);
}

TEST(DeadlySampleTest, ABatchOfNothingElseTellsWhatHappened) {
  auto options = handling(OnError::kSubstitute, 1);
  options.batch_size = 2;
  DataLoader loader(deadly({16, 17}, 1000, kill_self), options);
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().index, 16);
  EXPECT_THAT(error->what(), HasSubstr("was killed by signal 9 (Killed) at sample index 16"));
  EXPECT_THAT(error->what(), HasSubstr("; the same sample had ended a worker before"));
}

TEST(DeadlySampleTest, ThatHangsIsSkippedToo) {
  const auto hang = [] {
    for (;;) pause();
  };
  auto options = handling(OnError::kSkip, 2);
  options.sample_timeout = 200ms;
  DataLoader loader(deadly({17}, 1000, hang), options);
  Numbers all = epoch_of(loader);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, without(up_to(64), 17));
  EXPECT_THAT(loader.stats().bad_samples.at(0).error, HasSubstr("took longer than"));
}

TEST(DeadlySampleTest, MoreOfThemThanRestartsEndTheEpoch) {
  auto options = handling(OnError::kSkip, 1);
  options.max_restarts = 3;
  DataLoader loader(deadly({17, 40}, 1000, kill_self), options);
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().index, 40);
  EXPECT_THAT(error->what(), HasSubstr("max_restarts others were in this epoch already"));
}

TEST(DeadlySampleTest, ADeadlyCollateFunctionIsReportedAsABatch) {
  const auto collate = [](std::vector<int64_t>& samples) {
    if (samples.front() == 16) kill_self();
    return static_cast<int64_t>(samples.size());
  };
  DataLoader loader(Counting{64}, handling(OnError::kSkip, 2), collate);
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_FALSE(error->facts().index);
  EXPECT_THAT(error->what(), HasSubstr("not replaced, since the same batch had ended a worker"));
}

TEST(RestartTest, NoMoreWorkersThanMaxRestartsAreReplacedInAnEpoch) {
  DataLoader loader(deadly({10, 30, 50}, 1, kill_self),
                    {.batch_size = 8, .num_workers = 1, .max_restarts = 2});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().index, 50);
  EXPECT_THAT(error->what(), HasSubstr("max_restarts others were in this epoch already"));
  EXPECT_EQ(loader.stats().restarts, 2);
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

TEST(RestartTest, EachEpochHasItsOwnRestarts) {
  for (const bool persistent : {true, false}) {
    Shared<std::atomic<int>> epoch;
    Shared<std::array<std::atomic<bool>, 4>> died;
    const auto dataset = Made{64, [=](size_t index) {
                                if (index == 20 && !(*died)[*epoch].exchange(true)) kill_self();
                                return static_cast<int64_t>(index);
                              }};
    DataLoader loader(
        dataset,
        {.batch_size = 8, .num_workers = 2, .persistent_workers = persistent, .max_restarts = 1});
    for (; *epoch < 3; ++*epoch) EXPECT_EQ(epoch_of(loader), up_to(64));
    EXPECT_EQ(loader.stats().restarts, 3);
  }
}

TEST(RestartTest, WithoutOrderNothingIsLostEither) {
  DataLoader loader(deadly({3, 33, 60}, 1, kill_self),
                    {.batch_size = 4, .num_workers = 3, .in_order = false, .max_restarts = 3});
  Numbers all = epoch_of(loader);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, up_to(64));
}

struct Pages {
  int most_deaths;
  Shared<std::atomic<int>> deaths = {};
  int64_t get(size_t index) { return static_cast<int64_t>(index); }
  std::vector<int64_t> get_batch(std::span<const size_t> indices) {
    if (indices.front() == 16 && (*deaths)++ < most_deaths) kill_self();
    return {indices.begin(), indices.end()};
  }
  size_t size() const { return 64; }
};

TEST(RestartTest, WholeBatchesAreFetchedAgain) {
  DataLoader loader(Pages{1}, {.batch_size = 8, .num_workers = 2, .max_restarts = 1});
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

TEST(RestartTest, ABatchThatEndsTwoWorkersIsReportedAsABatch) {
  DataLoader loader(Pages{2}, {.batch_size = 8, .num_workers = 2, .max_restarts = 10});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("not replaced, since the same batch had ended a worker"));
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

// Nobody is to blame for two deaths: the bytes are those of a run without.
TEST(RestartTest, AWholeBatchThatDrawsHasTheSameBytesHoweverManyWorkersWereKilled) {
  struct Draws {
    int most_deaths;
    Shared<std::atomic<int>> deaths = {};
    int64_t get(size_t) { return at::randint(1 << 30, {}, at::kLong).item<int64_t>(); }
    std::vector<int64_t> get_batch(std::span<const size_t> indices) {
      if (indices.front() == 16 && (*deaths)++ < most_deaths) kill_self();
      std::vector<int64_t> all;
      for (const size_t index : indices) all.push_back(get(index));
      return all;
    }
    size_t size() const { return 40; }
  };
  for (const OnError on_error : {OnError::kSkip, OnError::kSubstitute}) {
    DataLoaderOptions options{.batch_size = 8, .seed = 4, .on_error = on_error};
    DataLoader undisturbed(Draws{0}, options);
    const Numbers expected = epoch_of(undisturbed);
    options.num_workers = 2;
    options.max_restarts = 10;
    for (const int deaths : {1, 2, 3}) {
      DataLoader loader(Draws{deaths}, options);
      EXPECT_EQ(epoch_of(loader), expected) << deaths;
      EXPECT_EQ(loader.stats().restarts, deaths);
      EXPECT_EQ(loader.stats().errors, 0);
    }
  }
}

TEST(DeadlySampleTest, OfAWholeBatchIsFoundByFetchingOneByOne) {
  struct Whole {
    int64_t get(size_t index) {
      if (index == 19) kill_self();
      return static_cast<int64_t>(index);
    }
    std::vector<int64_t> get_batch(std::span<const size_t> indices) {
      std::vector<int64_t> all;
      for (const size_t index : indices) all.push_back(get(index));
      return all;
    }
    size_t size() const { return 64; }
  };
  for (const int64_t workers : {1, 2}) {
    DataLoader loader(Whole{}, handling(OnError::kSkip, workers));
    Numbers all = epoch_of(loader);
    EXPECT_EQ(all[19], 20);
    EXPECT_EQ(loader.stats().restarts, 4);  // two for the batch, two for the sample
    ASSERT_EQ(loader.stats().bad_samples.size(), 1u);
    EXPECT_EQ(loader.stats().bad_samples[0].index, 19);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, without(up_to(64), 19));
  }
}

TEST(RestartTest, ReplacementsRunTheInitFunctionUnderTheSameId) {
  Shared<std::array<std::atomic<int>, 2>> calls;
  DataLoader loader(deadly({17}, 1, kill_self),
                    {.batch_size = 8,
                     .num_workers = 2,
                     .worker_init_fn = [=](int64_t id) { ++(*calls)[id]; },
                     .max_restarts = 1});
  EXPECT_EQ(epoch_of(loader), up_to(64));
  EXPECT_TRUE(eventually([&] { return (*calls)[0] + (*calls)[1] == 3; }));
}

TEST(RestartTest, DeathsInTheInitFunctionUseUpTheRestarts) {
  Shared<std::atomic<int>> calls;
  DataLoader loader(Counting{8}, {.num_workers = 1,
                                  .worker_init_fn =
                                      [=](int64_t) {
                                        ++*calls;
                                        _exit(7);
                                      },
                                  .max_restarts = 3});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().exit_status, 7);
  EXPECT_FALSE(error->facts().index);
  EXPECT_LE(*calls, 2 * (3 + 1));  // those before the first epoch count for themselves
}

TEST(RestartTest, AWorkerKilledBetweenEpochsIsReplaced) {
  DataLoader loader(Counting{64}, {.batch_size = 8, .num_workers = 2, .max_restarts = 1});
  EXPECT_EQ(epoch_of(loader), up_to(64));
  const auto before = loader_processes(2).workers;
  ASSERT_EQ(before.size(), 2u);
  kill(before[0], SIGKILL);
  ASSERT_TRUE(eventually([&] { return !is_alive(before[0]); }));
  EXPECT_EQ(epoch_of(loader), up_to(64));
  EXPECT_TRUE(eventually([] { return loader_processes(2).workers.size() == 2; }));
}

TEST(RestartTest, ADeathInAnEpochThatWasLeftDoesNoHarm) {
  DataLoader loader(deadly({40}, 1, kill_self),
                    {.batch_size = 8, .num_workers = 2, .prefetch_factor = 4, .max_restarts = 1});
  loader.begin();
  for (int epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(epoch_of(loader), up_to(64));
}

TEST(SampleTimeoutTest, AStuckWorkerIsReplaced) {
  DataLoader loader(
      deadly({17}, 1,
             [] {
               for (;;) pause();
             }),
      {.batch_size = 8, .num_workers = 2, .max_restarts = 1, .sample_timeout = 200ms});
  EXPECT_EQ(epoch_of(loader), up_to(64));
  EXPECT_EQ(loader.stats().restarts, 1);
}

TEST(SampleTimeoutTest, WithoutRestartsTheStuckSampleIsTold) {
  DataLoader loader(deadly({17}, 1,
                           [] {
                             for (;;) pause();
                           }),
                    {.batch_size = 8, .num_workers = 2, .sample_timeout = 200ms});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().index, 17);
  EXPECT_EQ(error->facts().signal, SIGKILL);
  EXPECT_THAT(error->what(),
              HasSubstr("took longer than the sample_timeout of 0.2 s at sample index 17"));
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

TEST(SampleTimeoutTest, ManyQuickSamplesAreNoSlowOne) {
  const auto quick = Made{200, [](size_t index) {
                            std::this_thread::sleep_for(5ms);
                            return static_cast<int64_t>(index);
                          }};
  DataLoader loader(quick, {.batch_size = 200, .num_workers = 1, .sample_timeout = 500ms});
  EXPECT_EQ(epoch_of(loader), up_to(200));
}

}  // namespace
}  // namespace stoker
