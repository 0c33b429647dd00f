// SPDX-License-Identifier: BSD-3-Clause

// A worker that the kernel kills because memory ran out, for real: in a control group of the
// test's own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "datasets.h"
#include "processes.h"

namespace stoker {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kLimit = int64_t{400} << 20;

bool put(const fs::path& file, int64_t value) {
  std::ofstream stream(file);
  stream << value << std::flush;
  return stream.good();
}

// A control group with a limit, which only root may make.
class LimitedGroup {
 public:
  LimitedGroup() {
    for (const char* mount : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      path_ = fs::path(mount) / ("stoker-test-" + std::to_string(getpid()));
      std::error_code ignored;
      if (!fs::create_directory(path_, ignored)) continue;
      if (put(path_ / "memory.limit_in_bytes", kLimit) || put(path_ / "memory.max", kLimit)) return;
      fs::remove(path_, ignored);
    }
    path_.clear();
  }
  ~LimitedGroup() {
    std::error_code ignored;
    if (!path_.empty()) eventually([&] { return fs::remove(path_, ignored); });
  }
  LimitedGroup(const LimitedGroup&) = delete;
  LimitedGroup& operator=(const LimitedGroup&) = delete;

  bool join() const { return !path_.empty() && put(path_ / "cgroup.procs", getpid()); }

 private:
  fs::path path_;
};

TEST(OutOfMemoryTest, AWorkerThatTheKernelKilledIsToldSo) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs more memory than the limit";
  const LimitedGroup group;
  const std::string told = in_child([&] {
    if (!group.join()) throw std::runtime_error("no group");
    const auto greedy = Made{64, [](size_t index) {
                               if (index == 17) {
                                 for (;;) std::memset(std::malloc(1 << 20), 1, 1 << 20);
                               }
                               return static_cast<int64_t>(index);
                             }};
    DataLoader loader(greedy, {.batch_size = 8, .num_workers = 2});
    throw std::runtime_error(error_of(loader).value().what());
  });
  if (told == "no group") GTEST_SKIP() << "no control group can be made here";
  EXPECT_THAT(told, AllOf(HasSubstr("was killed by signal 9 (Killed) at sample index 17; the "
                                    "kernel's OOM killer was at work (memory limit 400 MB, now "
                                    "available "),
                          HasSubstr("use fewer workers or smaller samples")));
}

// Where the kernel counts its kills at all.
TEST(OutOfMemoryTest, AWorkerThatSomebodyElseKilledIsToldSo) {
  const auto killed = Made{64, [](size_t index) {
                             if (index == 17) kill(getpid(), SIGKILL);
                             return static_cast<int64_t>(index);
                           }};
  DataLoader loader(killed, {.batch_size = 8, .num_workers = 2});
  const std::string told = error_of(loader).value().what();
  if (told.find("if nobody killed it") != std::string::npos) {
    GTEST_SKIP() << "the kernel does not count here";
  }
  EXPECT_THAT(told, HasSubstr("nothing says that memory ran out (the OOM killer was idle, "));
}

}  // namespace
}  // namespace stoker
