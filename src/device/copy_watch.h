// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which streams still copy from or to which slot, so that no worker writes to it meanwhile.
//
// Each copy is remembered with its stream (host_guard). When the last tensor over a slot is
// dropped, an event is recorded on each of those streams; the slot is free once all have passed.
//
// Process safety: does something only in the process that made it; a forked child's copy is inert.
// Thread safety: tensors are copied and dropped on any thread.

#include <c10/core/Stream.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "device/accelerator.h"
#include "device/host_guard.h"

namespace stoker::detail {

class CopyWatch final : public HostWatcher {
 public:
  // Watches these bytes, which hold all slots.
  CopyWatch(const std::byte* begin, uint64_t bytes);
  // Waits until nothing is copied any more.
  ~CopyWatch();
  CopyWatch(const CopyWatch&) = delete;
  CopyWatch& operator=(const CopyWatch&) = delete;

  void copied(const void* memory, c10::Stream stream) override;

  // The last tensor over that slot is gone, which takes these bytes. True if it is free; otherwise
  // it comes out of `take_done` or `wait_for_oldest`.
  bool release(uint32_t slot, const std::byte* begin, uint64_t bytes);
  // Slots whose copies are done by now.
  std::vector<uint32_t> take_done();
  // Waits for the slot that was released first; nothing if there is none.
  std::optional<uint32_t> wait_for_oldest();

 private:
  struct Busy {
    uint32_t slot;
    std::vector<SharedEvent> events;  // one per stream
  };
  std::vector<c10::Stream> take_streams(const std::byte* begin, uint64_t bytes);

  const std::byte* begin_;
  pid_t owner_;
  std::mutex mutex_;
  std::map<const void*, std::vector<c10::Stream>> streams_;  // guarded by mutex_
  std::deque<Busy> busy_;                                    // guarded by mutex_
};

// While it lives, slots that this thread releases and that stream copies from need no event of
// their own: whoever copies has recorded this one behind the copies, and shares it.
class RecordedCopies {
 public:
  RecordedCopies(c10::Stream stream, SharedEvent event);
  ~RecordedCopies();
  RecordedCopies(const RecordedCopies&) = delete;
  RecordedCopies& operator=(const RecordedCopies&) = delete;

  static SharedEvent event_on(c10::Stream stream);

 private:
  c10::Stream stream_;
  SharedEvent event_;
};

}  // namespace stoker::detail
