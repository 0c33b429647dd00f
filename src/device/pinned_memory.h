// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Memory that is page-locked where it lies, in stretches, for an accelerator to read by itself.
// Locking makes the pages exist.
//
// Process safety: does something only in the process that made it; a forked child's copy is inert.
// Thread safety: none; guarded by its owner.

#include <c10/core/Device.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>

#include "device/host_pin.h"

namespace stoker::detail {

class PinnedMemory {
 public:
  // `device`: for which the runtime is asked, so that no other device gets a context by it.
  PinnedMemory(const HostPinApi& api, c10::Device device);
  // Unlocks all. Nothing may be copied from or to it any more; the memory must still be mapped.
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  // Makes these bytes part of one locked stretch: a copy may not straddle two. Stretches that they
  // overlap are unlocked and locked anew as one, so nothing may be copied from those meanwhile. One
  // that grows, grows to a quarter more than asked for, within `most` bytes, so that slowly growing
  // batches do not lock anew each time. False if they are not locked; the first time the program
  // is warned, and nothing is locked from then on.
  bool pin(std::byte* begin, uint64_t bytes, uint64_t most);
  // Unlocks all stretches that begin in these bytes, before their pages are dropped.
  void unpin(const std::byte* begin, uint64_t bytes);
  // Bytes of the stretches that begin in these.
  uint64_t pinned(const std::byte* begin, uint64_t bytes) const;

  // Until locking failed.
  bool works() const { return works_; }

 private:
  using Stretches = std::map<std::byte*, uint64_t>;

  bool lock(std::byte* begin, uint64_t bytes);
  void unlock(Stretches::iterator stretch);

  HostPinApi api_;
  c10::Device device_;
  pid_t owner_;
  bool works_ = true;
  Stretches stretches_;  // where they begin, and their bytes; they do not overlap
};

}  // namespace stoker::detail
