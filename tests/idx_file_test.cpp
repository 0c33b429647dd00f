// SPDX-License-Identifier: BSD-3-Clause
#include "idx_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// Three pictures of 2 x 2, and three labels.
const std::string kHeader("\0\0\x08\x03\0\0\0\x03\0\0\0\x02\0\0\0\x02", 16);
const std::string kPictures = kHeader + "abcdefghij\xff\x80";
const std::string kLabels("\0\0\x08\x01\0\0\0\x03\x07\x00\x09", 11);

class IdxFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "idx_file_test.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string write_gzipped(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ / name;
    const gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), bytes.size());
    EXPECT_EQ(gzclose(file), Z_OK);
    return path;
  }
  static std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

// The message of the runtime_error that it throws.
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}
std::string error_of_reading(const std::string& path, const std::vector<uint64_t>& shape = {2, 2}) {
  return error_of([&] { idx::read(path, shape); });
}

TEST_F(IdxFileTest, PlainFileOfPictures) {
  const idx::Items items = idx::read(write("pictures", kPictures), {2, 2});
  EXPECT_EQ(items.size, 3);
  EXPECT_THAT(items.values,
              ElementsAre('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 0xff, 0x80));
}

TEST_F(IdxFileTest, GzippedFileIsTheSame) {
  const idx::Items items = idx::read(write_gzipped("pictures.gz", kPictures), {2, 2});
  EXPECT_EQ(items.size, 3);
  EXPECT_EQ(items.values, idx::read(write("pictures", kPictures), {2, 2}).values);
}

TEST_F(IdxFileTest, LabelsHaveNoShape) {
  const idx::Items items = idx::read(write("labels", kLabels), {});
  EXPECT_EQ(items.size, 3);
  EXPECT_THAT(items.values, ElementsAre(7, 0, 9));
}

TEST_F(IdxFileTest, NoItems) {
  std::string bytes = kHeader;
  bytes[7] = 0;
  const idx::Items items = idx::read(write("none", bytes), {2, 2});
  EXPECT_EQ(items.size, 0);
  EXPECT_THAT(items.values, IsEmpty());
}

TEST_F(IdxFileTest, LongerThanOneRead) {
  // 3,000 x 1,000 bytes that do not repeat with any power of two.
  std::string bytes("\0\0\x08\x02\0\0\x0b\xb8\0\0\x03\xe8", 12);
  for (int i = 0; i < 3'000'000; ++i) bytes += static_cast<char>(i % 251);
  for (const std::string& path : {write("long", bytes), write_gzipped("long.gz", bytes)}) {
    const idx::Items items = idx::read(path, {1000});
    EXPECT_EQ(items.size, 3000);
    EXPECT_EQ(std::string(items.values.begin(), items.values.end()), bytes.substr(12));
  }
}

TEST_F(IdxFileTest, MissingFile) {
  const std::string path = folder_ / "missing";
  EXPECT_EQ(error_of_reading(path), path + ": cannot be opened: No such file or directory");
}

TEST_F(IdxFileTest, FolderInsteadOfAFile) {
  const std::string path = folder_;
  EXPECT_EQ(error_of_reading(path), path + ": cannot be read: Is a directory");
}

TEST_F(IdxFileTest, EndsWithinItsHeader) {
  for (const size_t kept : {size_t{0}, size_t{1}, size_t{4}, kHeader.size() - 1}) {
    const std::string path = write("short", kHeader.substr(0, kept));
    EXPECT_EQ(error_of_reading(path), path + ": ends within its header") << kept << " bytes";
  }
}

TEST_F(IdxFileTest, CutShort) {
  for (const size_t missing : {1, 12}) {
    const std::string path = write("short", kPictures.substr(0, kPictures.size() - missing));
    EXPECT_EQ(error_of_reading(path), path + ": is cut short: " + std::to_string(12 - missing) +
                                          " of the 12 bytes that its header announces");
  }
}

TEST_F(IdxFileTest, GzippedFileCutShort) {
  const std::string bytes = bytes_of(write_gzipped("pictures.gz", kPictures));
  // Without its last byte all pictures are there, but not the whole checksum.
  for (const size_t missing : {size_t{1}, size_t{9}, bytes.size() / 2}) {
    const std::string path = write("short.gz", bytes.substr(0, bytes.size() - missing));
    EXPECT_EQ(error_of_reading(path), path + ": cannot be read: unexpected end of file")
        << missing << " bytes missing";
  }
}

TEST_F(IdxFileTest, DamagedGzippedFile) {
  std::string bytes = bytes_of(write_gzipped("pictures.gz", kPictures));
  bytes[bytes.size() - 8] ^= 1;  // in the checksum
  const std::string path = write("damaged.gz", bytes);
  EXPECT_EQ(error_of_reading(path), path + ": cannot be read: incorrect data check");
}

TEST_F(IdxFileTest, HeaderThatAnnouncesFarTooMuch) {
  std::string bytes = kPictures;
  for (size_t i = 4; i < 8; ++i) bytes[i] = '\xff';
  const std::string path = write("liar", bytes);
  EXPECT_EQ(error_of_reading(path), path +
                                        ": is cut short: 12 of the 17179869180 bytes that its "
                                        "header announces");
}

TEST_F(IdxFileTest, GoesOn) {
  const std::string path = write("long", kPictures + "k");
  EXPECT_EQ(error_of_reading(path), path + ": goes on after the items that its header announces");
}

TEST_F(IdxFileTest, NoIdxFile) {
  const std::string path = write("page", "<!DOCTYPE html><title>Not found</title>");
  EXPECT_EQ(error_of_reading(path), path +
                                        ": begins with the bytes 3c 21 44 4f, not with 00 00 08 03 "
                                        "as an idx file of bytes in 3 dimension(s) does");
}

TEST_F(IdxFileTest, OtherTypeOfValues) {
  std::string bytes = kPictures;
  bytes[2] = 0x0d;  // float
  const std::string path = write("floats", bytes);
  EXPECT_THAT(error_of_reading(path), AllOf(StartsWith(path + ": "), HasSubstr("00 00 0d 03")));
}

TEST_F(IdxFileTest, PicturesWhereLabelsAreExpected) {
  const std::string path = write("pictures", kPictures);
  EXPECT_THAT(error_of_reading(path, {}), AllOf(StartsWith(path + ": "), HasSubstr("00 00 08 03"),
                                                HasSubstr("not with 00 00 08 01")));
}

TEST_F(IdxFileTest, WrongSizes) {
  const std::string path = write("pictures", kPictures);
  EXPECT_EQ(error_of_reading(path, {28, 28}), path + ": holds items of 2 x 2, not of 28 x 28");
}

TEST_F(IdxFileTest, FindsThePlainFileFirst) {
  write_gzipped("labels.gz", kLabels);
  EXPECT_EQ(idx::find(folder_, "labels"), folder_ / "labels.gz");
  write("labels", kLabels);
  EXPECT_EQ(idx::find(folder_, "labels"), folder_ / "labels");
}

TEST_F(IdxFileTest, FindsNothing) {
  const std::string folder = folder_;
  EXPECT_EQ(error_of([&] { idx::find(folder_, "labels"); }),
            folder + ": there is neither labels nor labels.gz");
  EXPECT_EQ(error_of([&] { idx::find(folder_ / "nowhere", "labels"); }),
            folder + "/nowhere: there is neither labels nor labels.gz");
}

}  // namespace
