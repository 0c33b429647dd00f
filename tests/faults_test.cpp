// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include "datasets.h"
#include "processes.h"

namespace stoker {
namespace {

using testing::HasSubstr;

struct Stage {
  std::atomic<pid_t> worker{0};  // that is in the middle of sample 17
  std::atomic<bool> armed{true};
};

// Sample 17 does something that a sample should not, as long as the stage is armed.
template <class Deed>
auto with_trouble(Shared<Stage> stage, Deed deed) {
  return Made{64, [stage, deed](size_t index) {
                if (index == 17 && stage->armed) {
                  stage->worker = getpid();
                  deed();
                }
                return static_cast<int64_t>(index);
              }};
}

void sleep_for_ever() {
  for (;;) pause();
}

void expect_whole_epoch(auto& loader, Shared<Stage>& stage) {
  stage->armed = false;
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

TEST(FaultsTest, AnExceptionInGetIsToldWithTypeTextIndexAndWorker) {
  Shared<Stage> stage;
  DataLoader loader(with_trouble(stage, [] { throw std::domain_error("torn page"); }),
                    {.batch_size = 8, .num_workers = 2});
  auto it = loader.begin();
  EXPECT_EQ(numbers(*it), up_to(8));  // earlier batches come first
  ++it;
  for (int again = 0; again < 2; ++again) {  // an error stays one
    try {
      ++it;
      ADD_FAILURE() << "no error";
    } catch (const WorkerError& error) {
      EXPECT_EQ(error.facts().index, 17);
      EXPECT_EQ(error.facts().type_name, "std::domain_error");
      EXPECT_EQ(error.facts().pid, stage->worker.load());
      EXPECT_THAT(error.what(),
                  HasSubstr("caught std::domain_error at sample index 17: torn page"));
    }
  }
  expect_whole_epoch(loader, stage);
}

TEST(FaultsTest, AThrownIntIsToldToo) {
  Shared<Stage> stage;
  DataLoader loader(with_trouble(stage, [] { throw 42; }), {.batch_size = 8, .num_workers = 2});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().type_name, "int");
  expect_whole_epoch(loader, stage);
}

TEST(FaultsTest, WithoutWorkersTheExceptionIsTheDatasetsOwn) {
  Shared<Stage> stage;
  DataLoader loader(with_trouble(stage, [] { throw std::domain_error("torn page"); }),
                    {.batch_size = 8});
  EXPECT_THROW(error_of(loader), std::domain_error);
  expect_whole_epoch(loader, stage);
}

TEST(FaultsTest, SamplesThatDoNotFitTogetherAreNamed) {
  DataLoader loader(
      Made{64,
           [](size_t index) { return std::pair(at::zeros({index == 17 ? 4 : 3}), int64_t{0}); }},
      {.batch_size = 8, .num_workers = 2});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("cannot collate field [0] of samples 16 and 17: "
                                       "Float [3] and Float [4]"));
}

TEST(FaultsTest, AWorkerInitFnThatThrowsIsToldInEveryEpoch) {
  DataLoader loader(Counting{64},
                    {.batch_size = 8, .num_workers = 2, .worker_init_fn = [](int64_t) {
                       throw std::domain_error("no licence");
                     }});
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto error = error_of(loader);
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("worker_init_fn"));
    EXPECT_THAT(error->what(), HasSubstr("std::domain_error: no licence"));
  }
}

// Kills the worker that is in the middle of sample 17; says how long the loader took to tell.
void kill_in_the_middle(const char* where) {
  Shared<Stage> stage;
  DataLoader loader(with_trouble(stage, sleep_for_ever), {.batch_size = 8, .num_workers = 2});
  Clock::time_point killed;
  std::thread killer([&] {
    sleep_until([&] { return stage->worker != 0; });
    std::this_thread::sleep_for(20ms);  // the loader waits by now
    killed = Clock::now();
    kill(stage->worker, SIGKILL);
  });
  const auto error = error_of(loader);
  const auto told = Clock::now();
  killer.join();
  ASSERT_TRUE(error);
  std::cout << "told " << std::chrono::duration<double, std::milli>(told - killed).count()
            << " ms after the kill, " << where << "\n";
  EXPECT_EQ(error->facts().signal, SIGKILL);
  EXPECT_EQ(error->facts().pid, stage->worker.load());
  EXPECT_EQ(error->facts().index, 17);
  EXPECT_THAT(error->what(), HasSubstr("was killed by signal 9 (Killed) at sample index 17"));
  expect_whole_epoch(loader, stage);
}

TEST(FaultsTest, AKilledWorkerIsToldOnTheMainThread) { kill_in_the_middle("main thread"); }

TEST(FaultsTest, AKilledWorkerIsToldOnAnotherThread) {
  std::thread([] { kill_in_the_middle("another thread"); }).join();
}

TEST(FaultsTest, AWorkerThatExitsIsToldWithItsStatus) {
  Shared<Stage> stage;
  DataLoader loader(with_trouble(stage, [] { _exit(3); }), {.batch_size = 8, .num_workers = 2});
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->facts().exit_status, 3);
  EXPECT_EQ(error->facts().index, 17);
  expect_whole_epoch(loader, stage);
}

TEST(FaultsTest, WorkersKilledBetweenEpochsAreReplaced) {
  DataLoader loader(Counting{64}, {.batch_size = 8, .num_workers = 2});
  EXPECT_EQ(epoch_of(loader), up_to(64));
  const LoaderProcesses before = loader_processes(2);
  for (const pid_t worker : before.workers) kill(worker, SIGKILL);
  ASSERT_TRUE(eventually([&] { return !any_alive(before.workers); }));
  std::this_thread::sleep_for(50ms);  // until the supervisor has told
  EXPECT_EQ(epoch_of(loader), up_to(64));
}

TEST(FaultsTest, AKilledSupervisorIsTold) {
  Shared<Stage> stage;
  DataLoader loader(with_trouble(stage, sleep_for_ever), {.batch_size = 8, .num_workers = 2});
  std::thread killer([&] {
    sleep_until([&] { return stage->worker != 0; });
    kill(process_entry(stage->worker).parent, SIGKILL);
  });
  const auto error = error_of(loader);
  killer.join();
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("supervisor"));
  expect_whole_epoch(loader, stage);
}

TEST(FaultsTest, ATimeoutNamesTheSampleAndTheBatchStillComes) {
  Shared<Stage> stage;
  const auto wait = [stage] { sleep_until([&] { return !stage->armed.load(); }); };
  DataLoader loader(with_trouble(stage, wait),
                    {.batch_size = 8, .num_workers = 2, .timeout = 200ms});
  auto it = loader.begin();
  ++it;
  try {
    ++it;
    ADD_FAILURE() << "no error";
  } catch (const WorkerError& error) {
    EXPECT_EQ(error.facts().index, 17);
    EXPECT_THAT(error.what(), HasSubstr("no batch within the timeout of 0.2 s"));
  }
  stage->armed = false;
  ++it;
  EXPECT_EQ(numbers(*it).front(), 16);
}

TEST(FaultsTest, AFirstBatchThatTimedOutIsWaitedForByTheNextBegin) {
  Shared<std::atomic<bool>> free;
  Shared<std::atomic<int>> fetched;
  const auto slow = Made{4, [free, fetched](size_t index) {
                           ++*fetched;
                           sleep_until([&] { return free->load(); });
                           return static_cast<int64_t>(index);
                         }};
  DataLoader loader(slow, {.batch_size = 2, .num_workers = 1, .timeout = 200ms});
  for (int i = 0; i < 2; ++i) EXPECT_THROW(loader.begin(), WorkerError);
  *free = true;
  EXPECT_EQ(epoch_of(loader), up_to(4));
  EXPECT_EQ(*fetched, 4) << "it was the same epoch";
  EXPECT_EQ(loader.stats().epochs, 1);
}

TEST(FaultsTest, AVeryLongTimeoutIsNone) {
  DataLoader loader(Counting{4}, {.num_workers = 1, .timeout = std::chrono::hours(1'000'000'000)});
  EXPECT_EQ(epoch_of(loader), up_to(4));
  auto batch = loader.begin();
  EXPECT_EQ(epoch_of(loader), up_to(4));
}

TEST(FaultsTest, WithoutDescriptorsTheLoaderSaysSo) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs descriptors itself";
  EXPECT_EQ(in_child([] {
              const rlimit none{0, 0};
              require(setrlimit(RLIMIT_NOFILE, &none) == 0, "cannot set the limit");
              DataLoader loader(Counting{64}, {.num_workers = 2});
            }),
            "stoker: cannot make a pipe: Too many open files");
}

TEST(FaultsTest, WithoutProcessesTheLoaderSaysSo) {
  EXPECT_EQ(in_child([] {
              const rlimit none{0, 0};
              require(setrlimit(RLIMIT_NPROC, &none) == 0, "cannot set the limit");
              // The limit is none for root.
              if (geteuid() == 0) require(setuid(65534) == 0, "cannot become somebody else");
              DataLoader loader(Counting{64}, {.num_workers = 2});
            }),
            "stoker: cannot fork the supervisor of the workers: Resource temporarily unavailable");
}

TEST(FaultsTest, AnIteratorThatIsUsedTooLateSaysWhy) {
  std::optional<DataLoader<Counting>> loader(std::in_place, Counting{1}, DataLoaderOptions{});
  auto it = loader->begin();
  ++it;
  EXPECT_EQ(text_of<std::out_of_range>([&] { *it; }),
            "stoker: this iterator is past the end of its epoch");
  const auto later = loader->begin();
  EXPECT_EQ(text_of<std::logic_error>([&] { ++it; }),
            "stoker: this iterator's epoch was ended by a later begin()");
  loader.reset();
  EXPECT_EQ(text_of<std::logic_error>([&] { ++it; }),
            "stoker: the loader of this iterator is gone");
}

// Does not tell its size.
class Endless : public Sampler<int64_t> {
 public:
  void reset() override {}
  std::optional<int64_t> next() override { return 0; }
  std::optional<int64_t> size() const override { return std::nullopt; }
};

TEST(FaultsTest, ALoaderWhoseSamplerHasNoSizeSaysSo) {
  const DataLoader loader(Counting{1}, {.sampler = std::make_shared<Endless>()});
  EXPECT_EQ(text_of<std::logic_error>([&] { (void)loader.size(); }),
            "stoker: the sampler does not tell its size");
}

TEST(FaultsTest, DestroyingALoaderDoesNotWaitForAStuckSample) {
  std::vector<pid_t> processes;
  {
    Shared<Stage> stage;
    DataLoader loader(with_trouble(stage, sleep_for_ever), {.batch_size = 8, .num_workers = 2});
    auto it = loader.begin();
    sleep_until([&] { return stage->worker != 0; });
    processes = loader_processes(2).all();
  }
  EXPECT_EQ(processes.size(), 3u);
  EXPECT_FALSE(any_alive(processes));
}

TEST(FaultsTest, NoProcessOutlivesAProgramThatIsKilled) {
  Shared<std::array<std::atomic<pid_t>, 3>> pids;
  Shared<Stage> stage;
  const pid_t program = fork_child([&] {
    DataLoader loader(with_trouble(stage, sleep_for_ever), {.batch_size = 8, .num_workers = 2});
    const auto all = loader_processes(2).all();
    for (size_t i = 0; i < all.size(); ++i) (*pids)[i] = all[i];
    for (auto& batch : loader) (void)batch;
  });
  sleep_until([&] { return stage->worker != 0 && (*pids)[2] != 0; });
  kill(program, SIGKILL);
  const auto killed = Clock::now();
  wait_for(program);
  EXPECT_TRUE(eventually([&] { return !any_alive({(*pids)[0], (*pids)[1], (*pids)[2]}); }));
  std::cout << "gone " << std::chrono::duration<double, std::milli>(Clock::now() - killed).count()
            << " ms after the kill of the program\n";
}

}  // namespace
}  // namespace stoker
