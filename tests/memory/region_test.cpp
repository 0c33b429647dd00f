// SPDX-License-Identifier: BSD-3-Clause
#include "memory/region.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace stoker::detail {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMega = 1 << 20;

int open_descriptors() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

TEST(RegionTest, IsWritableZeroFilledPages) {
  const Region region(8 * kMega, kMega);
  EXPECT_EQ(region.size(), 8 * kMega);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(region.data()) % 4096, 0u);
  EXPECT_TRUE(std::all_of(region.data(), region.data() + region.size(),
                          [](std::byte b) { return b == std::byte{}; }));
  region.data()[region.size() - 1] = std::byte{1};
  EXPECT_EQ(region.data()[region.size() - 1], std::byte{1});
}

TEST(RegionTest, RoundsDownToWholePages) {
  EXPECT_EQ(Region(3 * 4096 + 1, 4096).size(), 3 * 4096u);
}

TEST(RegionTest, IsSharedWithAForkedProcess) {
  const Region region(kMega, kMega);
  const pid_t child = fork();
  if (child == 0) {
    region.data()[100] = std::byte{42};
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(region.data()[100], std::byte{42});
}

TEST(RegionTest, KeepsNoDescriptorOpenAndTakesNothingFromDevShm) {
  const int before = open_descriptors();
  const Region region(kMega, kMega);
  EXPECT_EQ(open_descriptors(), before);
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_THAT(text, testing::Not(HasSubstr("/dev/shm/")));
}

TEST(RegionTest, IsLeftOutOfCoreFiles) {
  const Region region(kMega, kMega);
  std::ostringstream address;
  address << std::hex << reinterpret_cast<uintptr_t>(region.data());
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  while (std::getline(maps, line) && !line.starts_with(address.str() + "-")) {
  }
  while (std::getline(maps, line) && !line.starts_with("VmFlags:")) {
  }
  EXPECT_THAT(line, HasSubstr(" dd"));
}

TEST(RegionTest, SaysWhatCannotBeMapped) {
  try {
    const Region region(uint64_t{1} << 62, uint64_t{1} << 60);  // more than processes have
    FAIL() << "mapped " << region.size();
  } catch (const std::system_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("stoker: cannot map 1152921504606846976 bytes"));
    EXPECT_NE(error.code().value(), 0);
  }
}

}  // namespace
}  // namespace stoker::detail
