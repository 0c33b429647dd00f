// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

/// Reads the files of the MNIST family: 0, 0, a type, the number of dimensions, each dimension as a
/// big-endian 32-bit number, then the values. Gzipped or not; bytes (type 8) only.
///
/// What is wrong with a file is a `std::runtime_error` that begins with the file's name.
namespace idx {

/// `size` items of the shape that was asked for, one after the other.
struct Items {
  size_t size = 0;
  std::vector<uint8_t> values;
};

namespace detail {

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_) fail(std::string("cannot be opened: ") + std::strerror(errno));
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(path_ + ": " + what);
  }

  /// Reads up to `size` bytes; fewer only at the end of the file.
  size_t read(uint8_t* to, size_t size) {
    const size_t got = gzfread(to, 1, size, file_.get());
    int error = Z_OK;
    std::string text = gzerror(file_.get(), &error);
    if (text.starts_with(path_ + ": ")) text.erase(0, path_.size() + 2);
    if (error < 0) fail("cannot be read: " + text);
    return got;
  }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

inline std::string times(const std::vector<uint64_t>& shape) {
  std::string text;
  for (const uint64_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text;
}

inline std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  char digits[8];
  for (const uint8_t byte : bytes) {
    std::snprintf(digits, sizeof digits, text.empty() ? "%02x" : " %02x", byte);
    text += digits;
  }
  return text;
}

/// Checks the header; returns the number of items.
inline uint64_t read_header(Reader& file, const std::vector<uint64_t>& shape) {
  const std::array<uint8_t, 4> magic = {0, 0, 8, static_cast<uint8_t>(1 + shape.size())};
  std::vector<uint8_t> header(magic.size() + 4 * (1 + shape.size()));
  if (file.read(header.data(), header.size()) < header.size()) file.fail("ends within its header");
  const std::span<const uint8_t> found(header.data(), magic.size());
  if (!std::ranges::equal(magic, found)) {
    file.fail("begins with the bytes " + hex(found) + ", not with " + hex(magic) +
              " as an idx file of bytes in " + std::to_string(1 + shape.size()) +
              " dimension(s) does");
  }
  std::vector<uint64_t> sizes;
  for (size_t at = magic.size(); at < header.size(); at += 4) {
    sizes.push_back(uint64_t{header[at]} << 24 | header[at + 1] << 16 | header[at + 2] << 8 |
                    header[at + 3]);
  }
  const std::vector<uint64_t> item(sizes.begin() + 1, sizes.end());
  if (item != shape) file.fail("holds items of " + times(item) + ", not of " + times(shape));
  return sizes[0];
}

}  // namespace detail

/// Reads a file of items of this shape: {28, 28} for pictures, {} for labels.
inline Items read(const std::string& path, const std::vector<uint64_t>& shape) {
  detail::Reader file(path);
  Items items{.size = detail::read_header(file, shape), .values = {}};
  uint64_t expected = items.size;
  for (const uint64_t size : shape) expected *= size;
  // Piece by piece, so that a header that lies costs no more memory than the file has bytes.
  constexpr uint64_t kPiece = 1 << 20;
  uint64_t got = 0;
  while (got == items.values.size() && got < expected) {
    items.values.resize(std::min(expected, got + kPiece));
    got += file.read(items.values.data() + got, items.values.size() - got);
  }
  if (got < expected) {
    file.fail("is cut short: " + std::to_string(got) + " of the " + std::to_string(expected) +
              " bytes that its header announces");
  }
  uint8_t extra;
  if (file.read(&extra, 1) != 0) file.fail("goes on after the items that its header announces");
  return items;
}

/// The path of a file in a folder, plain or with .gz behind its name.
inline std::string find(const std::filesystem::path& folder, const std::string& name) {
  for (const std::string& candidate : {name, name + ".gz"}) {
    if (std::filesystem::exists(folder / candidate)) return folder / candidate;
  }
  throw std::runtime_error(folder.string() + ": there is neither " + name + " nor " + name + ".gz");
}

}  // namespace idx
