// SPDX-License-Identifier: BSD-3-Clause

// Under every limit that a machine sets, a loader works, or the error is one of docs/failures.md.

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stoker/dataloader.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "datasets.h"
#include "process_memory.h"
#include "processes.h"

namespace stoker {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

// Runs the body in a child; the threads of a pool that other tests have started are not in it.
std::string outcome_of(const std::function<void()>& body) {
  return in_child([&] {
    at::set_num_threads(1);
    body();
  });
}

void set_limit(__rlimit_resource which, uint64_t value) {
  const rlimit limit{value, value};
  require(setrlimit(which, &limit) == 0, "cannot set the limit");
}

void require_whole_epoch(auto& loader, int64_t samples) {
  require(epoch_of(loader) == up_to(samples), "the epoch is not whole");
}

// 400 kB each; as a number, its own.
at::Tensor large_sample(size_t index) {
  return at::full({100'000}, static_cast<int>(index), at::kInt);
}

class AddressSpaceTest : public testing::TestWithParam<uint64_t> {};

// So many more megabytes than the process has mapped already.
TEST_P(AddressSpaceTest, ALoaderWorksOrSaysWhatItLacks) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer reserves terabytes itself";
  const std::string outcome = outcome_of([] {
    const auto mapped = static_cast<uint64_t>(process_status(getpid(), "VmSize:")) << 10;
    set_limit(RLIMIT_AS, mapped + (GetParam() << 20));
    DataLoader loader(Made{64, large_sample}, {.batch_size = 4, .num_workers = 2});
    for (int epoch = 0; epoch < 2; ++epoch) {
      int64_t index = 0;
      for (auto& batch : loader) {
        for (int64_t row = 0; row < 4; ++row, ++index) {
          require(batch[row][99'999].template item<int64_t>() == index, "a sample is wrong");
        }
      }
      require(index == 64, "samples are missing");
    }
  });
  std::cout << GetParam() << " MB: " << (outcome.empty() ? "works" : outcome) << "\n";
  if (GetParam() >= 512) {
    EXPECT_EQ(outcome, "");
  } else if (!outcome.empty()) {
    EXPECT_THAT(outcome, AnyOf(HasSubstr("bytes of shared memory (see `ulimit -v`)"),
                               HasSubstr("no memory for one more batch"),
                               HasSubstr("of shared memory; use a smaller batch_size"),
                               HasSubstr("could not be forked")));
  }
}
INSTANTIATE_TEST_SUITE_P(Megabytes, AddressSpaceTest, testing::Values(1, 16, 64, 128, 512, 4096),
                         testing::PrintToStringParamName());

TEST(LimitsTest, SixtyFourDescriptorsAreEnoughForEighteenLoaders) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs descriptors itself";
  EXPECT_EQ(outcome_of([] {
              set_limit(RLIMIT_NOFILE, 64);
              std::vector<DataLoader<Counting>> loaders;
              for (int i = 0; i < 18; ++i) {
                loaders.emplace_back(Counting{20},
                                     DataLoaderOptions{.batch_size = 3, .num_workers = 1});
              }
              std::vector<at::Tensor> kept;
              for (auto& loader : loaders) {
                for (auto& batch : loader) kept.push_back(batch);
              }
              require(kept.size() == 126, "batches are missing");
            }),
            "");
}

TEST(LimitsTest, SixtyFourWorkersShareTwoCores) {
  EXPECT_EQ(outcome_of([] {
              cpu_set_t cores;
              require(sched_getaffinity(0, sizeof cores, &cores) == 0, "cannot see the cores");
              for (int core = 0, left = 2; core < CPU_SETSIZE; ++core) {
                if (CPU_ISSET(core, &cores) && --left < 0) CPU_CLR(core, &cores);
              }
              require(sched_setaffinity(0, sizeof cores, &cores) == 0, "cannot set the cores");
              DataLoader loader(Counting{5000}, {.batch_size = 7, .num_workers = 64});
              for (int epoch = 0; epoch < 3; ++epoch) require_whole_epoch(loader, 5000);
              // Forks under a sanitizer, on a machine with other work, take their time.
              const auto all = [] { return loader_processes(64).workers.size() == 64; };
              require(eventually(all, 60s), "workers are missing");
            }),
            "");
}

std::set<std::string> names_in_shm() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator("/dev/shm")) names.insert(entry.path());
  return names;
}

TEST(LimitsTest, NothingAppearsInDevShm) {
  if (!fs::exists("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm here";
  DataLoader loader(Made{64, large_sample}, {.batch_size = 4, .num_workers = 2});
  std::vector<at::Tensor> kept;
  for (auto& batch : loader) kept.push_back(batch);
  EXPECT_EQ(kept.size(), 16u);
  // Those of other programs may come and go; ours would have no other name.
  for (const std::string& name : names_in_shm()) {
    EXPECT_EQ(name.find("stoker"), std::string::npos) << name;
  }
  for (const pid_t pid : loader_processes(2).all()) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    for (std::string line; std::getline(maps, line);) {
      EXPECT_EQ(line.find("/dev/shm"), std::string::npos) << line;
    }
  }
}

TEST(LimitsTest, WorkersThatCannotBeForkedAreTold) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a user without other processes";
  const std::string outcome = outcome_of([] {
    set_limit(RLIMIT_NPROC, 3);  // this one, the supervisor, and one worker
    require(setuid(64321) == 0, "cannot become somebody else");
    // Slow, so that main waits, and looks.
    const auto slow = [](size_t index) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return static_cast<int64_t>(index);
    };
    DataLoader loader(Made{64, slow}, {.num_workers = 2});
    require_whole_epoch(loader, 64);
  });
  EXPECT_EQ(outcome,
            "stoker: worker 1 could not be forked: Resource temporarily unavailable; use fewer "
            "workers, or raise the limit of processes or memory");
}

// A group of processes that may take so much memory, of version 1 or 2; for who may make one.
class MemoryGroup {
 public:
  explicit MemoryGroup(uint64_t bytes) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line) && !made_;) {
      const size_t path = line.find('/');
      const bool second = line.starts_with("0::");
      if (path == std::string::npos || !(second || line.find(":memory:") != std::string::npos))
        continue;
      const fs::path parent =
          fs::path("/sys/fs/cgroup") / (second ? "" : "memory") / line.substr(path + 1);
      folder_ = parent / ("stoker_test_" + std::to_string(getpid()));
      std::error_code error;
      made_ = fs::create_directory(folder_, error) &&
              write(second ? "memory.max" : "memory.limit_in_bytes", bytes);
      if (!made_) fs::remove(folder_, error);
    }
  }
  ~MemoryGroup() {
    std::error_code error;
    eventually([&] { return !made_ || fs::remove(folder_, error); });
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  bool made() const { return made_; }
  // The calling process, and what it forks.
  void join() const {
    require(write("cgroup.procs", static_cast<uint64_t>(getpid())), "cannot join");
  }

 private:
  bool write(const char* file, uint64_t value) const {
    std::ofstream out(folder_ / file);
    return static_cast<bool>(out << value << std::flush);
  }

  fs::path folder_;
  bool made_ = false;
};

class MemoryGroupTest : public testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer takes the memory itself";
    if (!group_.made()) GTEST_SKIP() << "no cgroup with a memory limit can be made here";
  }
  // Batches of 6.4 MB.
  static auto loader() {
    return DataLoader(Made{1024, large_sample},
                      DataLoaderOptions{.batch_size = 16, .num_workers = 2});
  }

  MemoryGroup group_{uint64_t{400} << 20};
};

TEST_F(MemoryGroupTest, MoreThanItsLimitStreamsThrough) {
  EXPECT_EQ(outcome_of([this] {
              group_.join();
              auto it = loader();
              int64_t samples = 0;
              for (int epoch = 0; epoch < 2; ++epoch) {
                for (auto& batch : it) samples += batch.size(0);
              }
              require(samples == 2048, "samples are missing");
            }),
            "");
}

// Not the kernel's SIGKILL, nor SIGBUS.
TEST_F(MemoryGroupTest, BatchesThatAreKeptEndInAnErrorBeforeItsLimit) {
  const std::string outcome = outcome_of([this] {
    group_.join();
    auto all = loader();
    std::vector<at::Tensor> kept;
    for (auto& batch : all) kept.push_back(batch);
  });
  EXPECT_THAT(outcome, HasSubstr("no memory for one more batch of 6"));
  EXPECT_THAT(outcome, HasSubstr("the program keeps"));
}

}  // namespace
}  // namespace stoker
