// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The slots of a loader: made when first needed, used again and again. A batch that the program
// holds is a lease on its slot; the lease keeps the memory mapped, also when the loader is gone.
//
// Process safety: the program's own process only. Thread safety: leases may end on any thread.

#include <c10/core/Storage.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "control.h"
#include "memory_budget.h"
#include "region.h"

namespace stoker::detail {

class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  // For a loader with that many workers and batches in flight, of at most `limit` bytes in all.
  SlotPool(uint32_t num_workers, InFlightLimit in_flight, uint64_t limit);

  Control& control() { return *control_; }

  // A free slot with room to keep the books of n samples; nothing if the address space is used up,
  // or the memory that batches may take.
  std::optional<uint32_t> acquire(uint64_t num_samples);
  void give_back(uint32_t slot);
  // Slots made so far.
  uint32_t made() const { return made_; }
  // Of the batch that a slot was acquired for.
  uint32_t num_samples(uint32_t slot) const { return num_samples_[slot]; }
  // What a batch took: the next ones will probably take as much.
  void learn(uint32_t slot, uint64_t bytes);

  struct Memory {
    uint32_t kept;      // batches that the program has
    uint64_t expected;  // bytes of a batch; 0 if not known
    uint64_t limit;
  };
  Memory memory();

 private:
  std::optional<uint32_t> make(uint64_t num_samples);
  uint64_t extent_bytes() const;
  bool make_room();
  void drop_pages(uint32_t slot);
  std::optional<uint32_t> take_free(uint64_t num_samples);

  Region region_;
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
