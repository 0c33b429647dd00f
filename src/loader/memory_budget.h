// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The books of a loader's shared memory: what its slots hold, what the next batch will take, and
// whether that is within the limit. Numbers only; whoever keeps them, touches and drops the memory.
//
// A batch in flight counts as much as batches took of late; what a slot holds otherwise is what
// the batch in it took, also when it is free again, since its pages stay. What is locked of a slot
// it holds in any case.
//
// Thread safety: none; guarded by its owner.

#include <cstdint>
#include <vector>

namespace stoker::detail {

class MemoryBudget {
 public:
  // `in_flight`: for how many batches what is left is divided.
  MemoryBudget(uint64_t limit, uint32_t in_flight) : limit_(limit), shares_(in_flight) {}

  // Whether one more batch can be in flight, in a slot that holds `reused` bytes now. While nobody
  // knows what a batch takes, `in_flight` are, with an equal share each.
  bool has_room(uint64_t reused) const;

  // A slot takes a batch. Returns how many bytes that batch may take.
  uint64_t begin(uint32_t slot);
  // .. has its batch, of that many bytes.
  void learn(uint32_t slot, uint64_t bytes);
  // .. gives its batch up; its size never became known.
  void end(uint32_t slot);
  // .. lost its pages.
  void drop(uint32_t slot);
  // .. has that many bytes of locked pages.
  void lock(uint32_t slot, uint64_t bytes);

  // What a batch takes; 0 if nobody knows.
  uint64_t expected() const { return expected_; }
  // What a slot holds; while a batch is in flight in it, beside that batch.
  uint64_t held(uint32_t slot) const { return slot < held_.size() ? held_[slot] : 0; }
  // How much of that the next batch in it need not take anew.
  uint64_t reusable(uint32_t slot) const { return held(slot) - beyond_batch(slot); }
  // Far more than batches take of late: worth giving back.
  bool is_unusual(uint64_t bytes) const;

  uint64_t limit() const { return limit_; }
  uint32_t in_flight() const { return in_flight_; }

 private:
  void set(uint32_t slot, uint64_t bytes);
  // What is locked of the slot, and more than a batch takes.
  uint64_t beyond_batch(uint32_t slot) const;

  uint64_t limit_;
  uint32_t shares_;
  uint32_t in_flight_ = 0;
  uint64_t expected_ = 0;  // the largest of late, slowly forgotten; 0: not known
  uint64_t least_ = 0;     // .. and the smallest
  uint64_t sum_ = 0;       // of held_
  std::vector<uint64_t> held_;
  std::vector<uint64_t> locked_;  // of held_
  std::vector<bool> is_in_flight_;
};

}  // namespace stoker::detail
