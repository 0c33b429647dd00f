// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The slots of a loader: made when first needed, used again and again. A batch that the program
// holds is a lease on its slot; the lease keeps the memory mapped, also when the loader is gone.
//
// Process safety: the program's own process only. Thread safety: leases may end on any thread.

#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <stoker/stats.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/copy_watch.h"
#include "device/pinned_memory.h"
#include "loader/memory_budget.h"
#include "memory/control.h"
#include "memory/region.h"

namespace stoker::detail {

class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  // For a loader with that many workers and batches in flight, of at most `limit` bytes in all.
  SlotPool(uint32_t num_workers, InFlightLimit in_flight, uint64_t limit);

  Control& control() { return *control_; }

  // From then on slots are not used again while that device copies from them, and with kInPlace
  // page-locked for it. At most once, after the workers are forked; without libtorch's hook (see
  // host_guard) slots are not watched, and must not be locked.
  void use_device(c10::Device device, Pinning pinning, const std::optional<HostPinApi>& api);
  Pinning pinning();

  // A free slot with room to keep the books of n samples; nothing if the address space is used up,
  // or the memory that batches may take. If all there is is being copied: waits if it `may_wait`.
  std::optional<uint32_t> acquire(uint64_t num_samples, bool may_wait = true);
  // In a child that the program forked: nothing. The slot is the program's, and the lock may be a
  // copy that another thread held.
  void give_back(uint32_t slot);
  // Slots made so far.
  uint32_t made() const { return made_; }
  // Of the batch that a slot was acquired for.
  uint32_t num_samples(uint32_t slot) const { return num_samples_[slot]; }
  // What a batch took: the next ones will probably take as much.
  void learn(uint32_t slot, uint64_t bytes);
  // Page-locks the rows of a batch, which are bytes of the slot from `begin` on, if such is to be
  // done. What is locked stays so for the batches after it.
  void pin(uint32_t slot, uint64_t begin, uint64_t bytes);

  struct Memory {
    uint32_t kept;      // batches that the program has
    uint64_t expected;  // bytes of a batch; 0 if not known
    uint64_t limit;
  };
  Memory memory();

 private:
  std::optional<uint32_t> acquire_now(uint64_t num_samples);
  void put_back(uint32_t slot);
  std::optional<uint32_t> make(uint64_t num_samples);
  uint64_t extent_bytes() const;
  bool make_room();
  void drop_pages(uint32_t slot);
  std::optional<uint32_t> take_free(uint64_t num_samples);

  pid_t owner_;
  Region region_;
  // In this order: what is copied must stay locked, and what is locked mapped.
  std::optional<PinnedMemory> pinned_;  // guarded by mutex_
  std::optional<CopyWatch> copies_;
  Pinning pinning_ = Pinning::kNone;  // guarded by mutex_
  Control* control_;
  uint32_t usual_in_flight_;
  uint32_t made_ = 0;
  uint64_t used_;  // bytes of the region given out
  std::vector<uint32_t> num_samples_;
  std::mutex mutex_;
  MemoryBudget budget_;  // guarded by mutex_
  std::vector<uint32_t>
      free_;  // guarded by mutex_; last given back, first used: its pages are warm
};

// Counts the tensors that lie in a slot, and gives it back with the last one.
class Lease {
 public:
  Lease(std::shared_ptr<SlotPool> pool, uint32_t slot) : pool_(std::move(pool)), slot_(slot) {}

  void add() { references_.fetch_add(1, std::memory_order_relaxed); }
  // Has the form of a c10::DeleterFnPtr.
  static void release(void* lease);

 private:
  std::shared_ptr<SlotPool> pool_;
  uint32_t slot_;
  // The release of each tensor's decrement pairs with the acquire of the last one.
  std::atomic<uint32_t> references_{1};
};

}  // namespace stoker::detail
