// SPDX-License-Identifier: BSD-3-Clause
#include "memory/control.h"

#include <bit>
#include <new>

namespace stoker::detail {

// In memory: Control, Extent[kMaxSlots], WorkerRecord[num_workers], ring[ring_size].
namespace {

constexpr uint64_t kExtentsAt = align64(sizeof(Control));
constexpr uint64_t kWorkersAt = kExtentsAt + sizeof(Extent) * Control::kMaxSlots;

uint64_t ring_at(uint32_t num_workers) {
  return align64(kWorkersAt + sizeof(WorkerRecord) * num_workers);
}

template <class T>
T* inside(void* base, uint64_t offset) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(base) + offset);
}

}  // namespace

Control::Control(uint32_t num_workers, uint32_t ring_size)
    : num_workers_(num_workers), ring_size_(ring_size) {}

uint64_t Control::bytes_needed(uint32_t num_workers, uint32_t max_in_flight) {
  const uint64_t bytes =
      ring_at(num_workers) + sizeof(std::atomic<uint32_t>) * std::bit_ceil(max_in_flight + 1);
  return (bytes + Slot::kPage - 1) & ~(Slot::kPage - 1);
}

Control* Control::create(std::byte* memory, uint32_t num_workers, uint32_t max_in_flight) {
  auto* control = new (memory) Control(num_workers, std::bit_ceil(max_in_flight + 1));
  for (uint32_t i = 0; i < num_workers; ++i) new (&control->worker(i)) WorkerRecord(i);
  return control;
}

WorkerRecord& Control::worker(uint32_t id) { return inside<WorkerRecord>(this, kWorkersAt)[id]; }

std::atomic<uint32_t>* Control::ring() {
  return inside<std::atomic<uint32_t>>(this, ring_at(num_workers_));
}

Slot Control::slot(uint32_t id) {
  const Extent& extent = inside<Extent>(this, kExtentsAt)[id];
  // Pairs with the release in set_extent: whoever sees that the slot is there sees where.
  const uint64_t bytes = extent.bytes.load(std::memory_order_acquire);
  return {inside<std::byte>(this, extent.offset.load(std::memory_order_relaxed)), bytes,
          num_workers_};
}

void Control::set_extent(uint32_t slot, Extent&& extent) {
  Extent& mine = inside<Extent>(this, kExtentsAt)[slot];
  mine.offset.store(extent.offset, std::memory_order_relaxed);
  mine.bytes.store(extent.bytes, std::memory_order_release);
}

void Control::publish(uint32_t slot) {
  const uint32_t sequence = published_.load(std::memory_order_relaxed);
  ring()[sequence & (ring_size_ - 1)].store(slot, std::memory_order_relaxed);
  // Pairs with the worker that counts itself as a sleeper, then looks at published_ again.
  published_.store(sequence + 1, std::memory_order_seq_cst);
}

bool Control::complete(Slot slot, uint32_t sequence, SlotStatus status) {
  slot.header().finish_stamp = finished_.fetch_add(1, std::memory_order_relaxed);
  slot.header().status.store(status, std::memory_order_seq_cst);
  const uint64_t wanted = wanted_.load(std::memory_order_seq_cst);
  if (wanted != kAny && wanted != sequence) return false;
  raise_event();
  return true;
}

void WorkerRecord::renew() {
  state.store(WorkerState::kNone, std::memory_order_relaxed);
  pid.store(0, std::memory_order_relaxed);
  claim.store(kIdle, std::memory_order_relaxed);
  progress.since.store(0, std::memory_order_relaxed);
  overdue.store(0, std::memory_order_relaxed);
  final.store(Final::kNoRestarts, std::memory_order_relaxed);
  oom_killer.store(OomKiller::kUnknown, std::memory_order_relaxed);
  setup.store(Setup::kInitFn, std::memory_order_relaxed);
}

void Control::disown(uint32_t worker) {
  for_each_open(
      [&](const Claim& batch) { slot(batch.slot).disown(Slot::worker(batch.sequence, worker)); });
  this->worker(worker).renew();
}

void Control::forget_workers() {
  for (uint32_t i = 0; i < num_workers_; ++i) disown(i);
  sleepers_.store(0, std::memory_order_relaxed);
  stop_.store(0, std::memory_order_relaxed);
  supervised_.store(0, std::memory_order_relaxed);
  troubles_.store(0, std::memory_order_relaxed);
}

void Control::reset() {
  for (uint32_t i = 0; i < num_workers_; ++i) new (&worker(i)) WorkerRecord(i);
  head_.store(published_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  sleepers_.store(0, std::memory_order_relaxed);
  stop_.store(0, std::memory_order_relaxed);
  supervised_.store(0, std::memory_order_relaxed);
  troubles_.store(0, std::memory_order_relaxed);
  want_nothing();
}

}  // namespace stoker::detail
