// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace stoker {

/// A file for reading that processes may share. A descriptor that was opened before a fork has one
/// offset for all of them: with `lseek` and `read` (or `std::ifstream`, `FILE`) workers move it
/// under each other's hands and read wrong bytes, without an error. This one reads with `pread`,
/// which takes the offset along, so a dataset may open it in its constructor.
///
/// Movable. Thread safety: `read_at` may be called by any number of threads at once.
class PreadFile {
 public:
  /// Opens the file (`O_RDONLY`, `O_CLOEXEC`). Throws `std::system_error` that names it.
  explicit PreadFile(std::string path);
  ~PreadFile();
  PreadFile(PreadFile&& other) noexcept;
  PreadFile& operator=(PreadFile&& other) noexcept;

  const std::string& path() const { return path_; }
  /// Bytes that the file has now. Throws `std::system_error`.
  uint64_t size() const;
  /// Fills all of `bytes` with what lies from `offset` (in bytes) on. Throws `std::out_of_range` if
  /// the file ends before, `std::system_error` if it cannot be read.
  void read_at(uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace stoker
