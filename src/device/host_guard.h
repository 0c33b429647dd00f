// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sees every asynchronous copy that libtorch makes between an accelerator and memory of ours.
//
// libtorch protects the pinned memory that it allocates: each copy tells its host allocator which
// stream reads which memory, and what was freed is used again only when those streams are done. Of
// memory that it did not allocate it knows nothing, and starts the copy all the same. So an
// allocator of ours stands in front of libtorch's own, hears of each copy, keeps those that concern
// our memory, and passes everything else on.
//
// Thread safety: all of it, but for `install`, which must not run while another thread copies for
// the first time.

#include <c10/core/DeviceType.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>

namespace stoker::detail {

// Is told of the copies from and to its memory.
class HostWatcher {
 public:
  virtual void copied(const void* memory, c10::Stream stream) = 0;

 protected:
  ~HostWatcher() = default;
};

// Puts the allocator in front, once for each type of device and for the life of the process. False
// where that is not to be had: libtorch before 2.8, a backend without a host allocator, another
// library's that insists on its place.
bool install_host_guard(c10::DeviceType type);

void watch_host_memory(const std::byte* begin, uint64_t bytes, HostWatcher& watcher);
void unwatch_host_memory(const std::byte* begin);
// Whether somebody watches it: then it may be let go while it is being copied.
bool is_watched_host_memory(const void* memory);

}  // namespace stoker::detail
