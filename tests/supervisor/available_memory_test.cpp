// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/available_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace stoker::detail {
namespace {

namespace fs = std::filesystem;

// A /proc and a /sys of our own.
class AvailableMemoryTest : public testing::Test {
 protected:
  AvailableMemoryTest() {
    std::string name = fs::temp_directory_path() / "stoker-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~AvailableMemoryTest() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void write_group(const std::string& path, const std::string& limit, const std::string& usage,
                   const std::string& cache) {
    write("sys/fs/cgroup/" + path + "/memory.max", limit + "\n");
    write("sys/fs/cgroup/" + path + "/memory.current", usage + "\n");
    write("sys/fs/cgroup/" + path + "/memory.stat", "anon 1\ninactive_file " + cache + "\n");
  }

  fs::path root_;
};

TEST_F(AvailableMemoryTest, IsUnlimitedIfNothingIsKnown) {
  EXPECT_EQ(available_memory(root_), UINT64_MAX);
}

TEST_F(AvailableMemoryTest, IsTheMachinesWithoutAGroup) {
  write("proc/meminfo", "MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:     300 kB\n");
  EXPECT_EQ(available_memory(root_), 300u * 1024);
}

TEST_F(AvailableMemoryTest, IsTheGroupsIfThatIsLess) {
  write("proc/meminfo", "MemAvailable: 300 kB\n");
  write("proc/self/cgroup", "0::/job\n");
  write_group("job", "200000", "150000", "10000");
  EXPECT_EQ(available_memory(root_), 60000u);
}

TEST_F(AvailableMemoryTest, AGroupAboveLimitsTheOnesBelow) {
  write("proc/self/cgroup", "1:name=systemd:/x\n0::/job/step\n");
  write_group("job", "1000", "400", "0");
  write_group("job/step", "max", "300", "0");
  EXPECT_EQ(available_memory(root_), 600u);
}

TEST_F(AvailableMemoryTest, AGroupThatIsOverItsLimitHasNothingLeft) {
  write("proc/self/cgroup", "0::/job\n");
  write_group("job", "1000", "5000", "100");
  EXPECT_EQ(available_memory(root_), 0u);
}

TEST_F(AvailableMemoryTest, InAContainerTheTopOfTheMountIsTheGroup) {
  write("proc/self/cgroup", "0::/docker/0123\n");
  write_group("", "5000", "1000", "0");
  EXPECT_EQ(available_memory(root_), 4000u);
}

TEST_F(AvailableMemoryTest, KnowsGroupsOfVersionOne) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:hugetlb,memory:/a/b\n");
  write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9000\n");
  write("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "8000\n");
  write("sys/fs/cgroup/memory/a/b/memory.stat", "total_inactive_file 500\n");
  EXPECT_EQ(available_memory(root_), 1500u);
}

using MemorySignsTest = AvailableMemoryTest;

TEST_F(MemorySignsTest, NothingIsKnownWithoutFiles) {
  const MemorySigns signs = memory_signs(root_);
  EXPECT_FALSE(signs.oom_kills);
  EXPECT_EQ(signs.limit, UINT64_MAX);
  EXPECT_EQ(signs.available, UINT64_MAX);
}

TEST_F(MemorySignsTest, WithoutGroupsTheMachineCounts) {
  write("proc/vmstat", "nr_free_pages 7\noom_kill 3\n");
  write("proc/meminfo", "MemAvailable: 300 kB\n");
  const MemorySigns signs = memory_signs(root_);
  EXPECT_EQ(signs.oom_kills, 3u);
  EXPECT_EQ(signs.limit, UINT64_MAX);
  EXPECT_EQ(signs.available, 300u * 1024);
}

TEST_F(MemorySignsTest, TheLowestGroupCountsItsKillsAndTheLeastLimitHolds) {
  write("proc/vmstat", "oom_kill 30\n");
  write("proc/self/cgroup", "0::/job/step\n");
  write_group("job", "200000", "150000", "0");
  write_group("job/step", "900000", "150000", "0");
  write("sys/fs/cgroup/job/memory.events", "oom 9\noom_kill 9\n");
  write("sys/fs/cgroup/job/step/memory.events", "low 0\nmax 4\noom 1\noom_kill 2\n");
  const MemorySigns signs = memory_signs(root_);
  EXPECT_EQ(signs.oom_kills, 2u);
  EXPECT_EQ(signs.limit, 200000u);
  EXPECT_EQ(signs.available, 50000u);
}

TEST_F(MemorySignsTest, InAContainerTheTopOfTheMountCounts) {
  write("proc/self/cgroup", "0::/docker/0123\n");
  write_group("", "5000", "1000", "0");
  write("sys/fs/cgroup/memory.events", "oom_kill 4\n");
  EXPECT_EQ(memory_signs(root_).oom_kills, 4u);
  EXPECT_EQ(memory_signs(root_).limit, 5000u);
}

TEST_F(MemorySignsTest, KnowsGroupsOfVersionOneAndTheirNumberForNoLimit) {
  write("proc/self/cgroup", "4:memory:/a\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/a/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  EXPECT_EQ(memory_signs(root_).oom_kills, 5u);
  EXPECT_EQ(memory_signs(root_).limit, UINT64_MAX);
}

TEST(AvailableMemoryOfThisMachineTest, IsMoreThanNothing) {
  EXPECT_GT(available_memory(), 1u << 20);
  EXPECT_LT(available_memory(), uint64_t{1} << 46);
}

}  // namespace
}  // namespace stoker::detail
