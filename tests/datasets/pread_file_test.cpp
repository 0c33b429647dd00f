// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/pread_file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "datasets.h"

namespace stoker {
namespace {

using testing::HasSubstr;

class PreadFileTest : public testing::Test {
 protected:
  PreadFileTest() {
    std::string name = std::filesystem::temp_directory_path() / "stoker-XXXXXX";
    close(mkstemp(name.data()));
    path_ = name;
    std::ofstream(path_) << "0123456789";
  }
  ~PreadFileTest() override { std::filesystem::remove(path_); }

  static std::string text_at(const PreadFile& file, uint64_t offset, size_t bytes) {
    std::string text(bytes, '?');
    file.read_at(offset, std::as_writable_bytes(std::span(text)));
    return text;
  }

  std::string path_;
};

TEST_F(PreadFileTest, ReadsWhatLiesThere) {
  const PreadFile file(path_);
  EXPECT_EQ(file.path(), path_);
  EXPECT_EQ(file.size(), 10u);
  EXPECT_EQ(text_at(file, 3, 4), "3456");
  EXPECT_EQ(text_at(file, 0, 10), "0123456789");
  EXPECT_EQ(text_at(file, 9, 1), "9");
  EXPECT_EQ(text_at(file, 99, 0), "");
}

TEST_F(PreadFileTest, TheSizeIsThatOfNow) {
  const PreadFile file(path_);
  std::ofstream(path_, std::ios::app) << "abc";
  EXPECT_EQ(file.size(), 13u);
  EXPECT_EQ(text_at(file, 9, 3), "9ab");
}

TEST_F(PreadFileTest, PastTheEndIsToldWithPathOffsetAndBytes) {
  const PreadFile file(path_);
  EXPECT_EQ(text_of<std::out_of_range>([&] { text_at(file, 8, 5); }),
            "stoker: " + path_ + " ends after 2 of 5 bytes at offset 8");
  EXPECT_EQ(text_of<std::out_of_range>([&] { text_at(file, 100, 1); }),
            "stoker: " + path_ + " ends after 0 of 1 bytes at offset 100");
  constexpr uint64_t kFar = std::numeric_limits<uint64_t>::max() - 1;
  EXPECT_EQ(text_of<std::out_of_range>([&] { text_at(file, kFar, 5); }),
            "stoker: " + path_ + " ends after 0 of 5 bytes at offset 18446744073709551614");
}

TEST_F(PreadFileTest, AFileThatIsNotThereIsToldWithItsPath) {
  try {
    PreadFile file("/no/such/file");
    FAIL() << "no error";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), ENOENT);
    EXPECT_STREQ(error.what(), "stoker: cannot open /no/such/file: No such file or directory");
  }
}

TEST_F(PreadFileTest, WhatCannotBeReadIsToldWithOffsetAndBytes) {
  const PreadFile folder("/tmp");
  EXPECT_EQ(text_of<std::system_error>([&] { text_at(folder, 5, 3); }),
            "stoker: cannot read 3 bytes at offset 5 of /tmp: Is a directory");
}

TEST_F(PreadFileTest, MovesWithItsFile) {
  PreadFile a(path_);
  PreadFile b(std::move(a));
  EXPECT_EQ(text_at(b, 0, 2), "01");
  PreadFile c("/dev/zero");
  c = std::move(b);
  EXPECT_EQ(c.path(), path_);
  EXPECT_EQ(text_at(c, 0, 2), "01");
}

TEST_F(PreadFileTest, ProgramsThatAreStartedDoNotInheritIt) {
  const int next = dup(0);  // the number that the file will get
  close(next);
  const PreadFile file(path_);
  EXPECT_EQ(fcntl(next, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

}  // namespace
}  // namespace stoker
