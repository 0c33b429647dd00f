// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <stoker/pread_file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace stoker {

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), "stoker: cannot " + what);
}

std::string range(uint64_t offset, size_t bytes) {
  return std::to_string(bytes) + " bytes at offset " + std::to_string(offset);
}

}  // namespace

PreadFile::PreadFile(std::string path) : path_(std::move(path)) {
  do {
    fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  } while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) fail("open " + path_);
}

PreadFile::~PreadFile() {
  if (fd_ >= 0) close(fd_);
}

PreadFile::PreadFile(PreadFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

PreadFile& PreadFile::operator=(PreadFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

uint64_t PreadFile::size() const {
  struct stat status {};
  if (fstat(fd_, &status) != 0) fail("tell the size of " + path_);
  return static_cast<uint64_t>(status.st_size);
}

void PreadFile::read_at(uint64_t offset, std::span<std::byte> bytes) const {
  constexpr uint64_t kLast = std::numeric_limits<off_t>::max();
  size_t done = 0;
  while (done < bytes.size()) {
    // Past the last offset that can be told there is nothing.
    const bool beyond = offset > kLast || done > kLast - offset;
    const ssize_t got = beyond ? 0
                               : pread(fd_, bytes.data() + done, bytes.size() - done,
                                       static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read " + range(offset, bytes.size()) + " of " + path_);
    if (got == 0) {
      throw std::out_of_range("stoker: " + path_ + " ends after " + std::to_string(done) + " of " +
                              range(offset, bytes.size()));
    }
    done += static_cast<size_t>(got);
  }
}

}  // namespace stoker
