// SPDX-License-Identifier: BSD-3-Clause
#include "memory/region.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/interprocess/anonymous_shared_memory.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <system_error>

namespace stoker::detail {

namespace ipc = boost::interprocess;

struct Region::Mapping {
  ipc::mapped_region region;
};

namespace {

// What boost::interprocess::mapped_region wants of a thing to map.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("stoker", MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);  // the mapping stays
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  bool resize(uint64_t bytes) { return fd_ >= 0 && ftruncate(fd_, static_cast<off_t>(bytes)) == 0; }
  ipc::mapping_handle_t get_mapping_handle() const { return {fd_, false}; }

 private:
  int fd_;
};

// With `ulimit -v`, others must have room too.
uint64_t address_space_share() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return ~uint64_t{0};
  return limit.rlim_cur / 4;
}

uint64_t whole_pages(uint64_t bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::max(bytes / page, uint64_t{1}) * page;
}

// memfd_create may be refused (old kernels, some sandboxes); Boost then maps shared anonymous
// memory, which is sparse as well, but counted against the overcommit limit.
ipc::mapped_region map(uint64_t bytes) {
  MemoryFile file;
  if (!file.resize(bytes)) return ipc::anonymous_shared_memory(bytes);
  return {file, ipc::read_write, 0, bytes, nullptr, MAP_NORESERVE};
}

}  // namespace

Region::Region(uint64_t want, uint64_t least) {
  for (uint64_t bytes = std::min(want, address_space_share());; bytes /= 2) {
    const bool last = bytes <= least;
    if (last) bytes = least;
    try {
      mapping_ = std::make_unique<Mapping>(Mapping{map(whole_pages(bytes))});
      break;
    } catch (const ipc::interprocess_exception& error) {
      if (last) {
        throw std::system_error(static_cast<int>(error.get_native_error()), std::system_category(),
                                "stoker: cannot map " + std::to_string(bytes) +
                                    " bytes of shared memory (see `ulimit -v`)");
      }
    }
  }
  // A core file would have to hold all of it.
  madvise(data(), size(), MADV_DONTDUMP);
}

Region::~Region() = default;

// Only costs memory where it is refused.
void Region::drop(std::byte* from, uint64_t bytes) const { madvise(from, bytes, MADV_REMOVE); }

std::byte* Region::data() const { return static_cast<std::byte*>(mapping_->region.get_address()); }

uint64_t Region::size() const { return mapping_->region.get_size(); }

}  // namespace stoker::detail
