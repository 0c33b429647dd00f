// SPDX-License-Identifier: BSD-3-Clause
#include "loader/slot_pool.h"

#include <unistd.h>

#include <algorithm>

namespace stoker::detail {

namespace {

// Address space, not memory. Room for thousands of slots of gigabytes; dozens of loaders fit the
// 128 TB that a process has.
constexpr uint64_t kRegionBytes = uint64_t{4} << 40;
constexpr uint64_t kSlotBytes = uint64_t{1} << 30;
// What a slot's header, layouts and books take beside its rows, roughly.
constexpr uint64_t kBookBytes = 8 * Slot::kPage;

uint64_t whole_pages(uint64_t bytes) { return bytes & ~(Slot::kPage - 1); }

// With little address space, every slot is small.
uint64_t least_bytes(uint32_t num_workers, InFlightLimit in_flight) {
  return Control::bytes_needed(num_workers, in_flight.most) +
         (in_flight.usual + 2) * Slot::kMinBytes * 2;
}

}  // namespace

SlotPool::SlotPool(uint32_t num_workers, InFlightLimit in_flight, uint64_t limit)
    : owner_(getpid()),
      region_(kRegionBytes, least_bytes(num_workers, in_flight)),
      control_(Control::create(region_.data(), num_workers, in_flight.most)),
      usual_in_flight_(in_flight.usual),
      used_(Control::bytes_needed(num_workers, in_flight.most)),
      budget_(limit, in_flight.usual) {}

void SlotPool::use_device(c10::Device device, Pinning pinning,
                          const std::optional<HostPinApi>& api) {
  const std::lock_guard lock(mutex_);
  pinning_ = pinning;
  if (pinning == Pinning::kInPlace) pinned_.emplace(api.value(), device);
  if (install_host_guard(device.type())) copies_.emplace(region_.data(), region_.size());
}

Pinning SlotPool::pinning() {
  const std::lock_guard lock(mutex_);
  return pinned_ && !pinned_->works() ? Pinning::kNone : pinning_;
}

std::optional<uint32_t> SlotPool::acquire(uint64_t num_samples, bool may_wait) {
  std::unique_lock lock(mutex_);
  if (copies_) {
    for (const uint32_t slot : copies_->take_done()) put_back(slot);
  }
  for (;;) {
    const auto slot = acquire_now(num_samples);
    if (slot || !may_wait || !copies_) return slot;
    lock.unlock();  // tensors must be able to go meanwhile
    const auto copied = copies_->wait_for_oldest();
    lock.lock();
    if (!copied) return std::nullopt;
    put_back(*copied);
  }
}

std::optional<uint32_t> SlotPool::acquire_now(uint64_t num_samples) {
  if (!make_room()) return std::nullopt;
  auto slot = take_free(num_samples);
  if (!slot) slot = make(num_samples);
  if (!slot) return std::nullopt;
  num_samples_.resize(made_);
  num_samples_[*slot] = static_cast<uint32_t>(num_samples);
  if (budget_.is_unusual(budget_.held(*slot))) drop_pages(*slot);
  control_->slot(*slot).header().budget = budget_.begin(*slot);
  return slot;
}

// Slots that are free keep their pages for the next batch, but not at the cost of it. The one that
// was given back last is used next.
bool SlotPool::make_room() {
  const auto next = [this] { return free_.empty() ? 0 : budget_.reusable(free_.back()); };
  for (const uint32_t slot : free_) {
    if (budget_.has_room(next())) break;
    if (slot != free_.back()) drop_pages(slot);
  }
  return budget_.has_room(next());
}

void SlotPool::drop_pages(uint32_t id) {
  const Slot slot = control_->slot(id);
  if (pinned_) pinned_->unpin(slot.at(0), slot.bytes());
  region_.drop(slot.at(slot.rows_begin()), slot.bytes() - slot.rows_begin());
  budget_.drop(id);
}

std::optional<uint32_t> SlotPool::take_free(uint64_t num_samples) {
  const auto fits = [&](uint32_t slot) {
    return Slot::has_room(control_->slot(slot).bytes(), num_samples);
  };
  const auto found = std::find_if(free_.rbegin(), free_.rend(), fits);
  if (found == free_.rend()) return std::nullopt;
  const uint32_t slot = *found;
  free_.erase(std::next(found).base());
  return slot;
}

void SlotPool::give_back(uint32_t slot) {
  if (getpid() != owner_) return;
  const std::lock_guard lock(mutex_);
  const Slot memory = control_->slot(slot);
  if (copies_ && !copies_->release(slot, memory.at(0), memory.bytes())) return;
  put_back(slot);
}

void SlotPool::put_back(uint32_t slot) {
  budget_.end(slot);
  free_.push_back(slot);
}

// Rows begin a little later the more there are. Locked from where their books begin, a slot's
// batches of all sizes lie in one stretch.
void SlotPool::pin(uint32_t id, uint64_t begin, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!pinned_ || bytes == 0) return;
  const Slot slot = control_->slot(id);
  const uint64_t from = begin == slot.rows_begin() ? Slot::books_begin() : begin;
  const uint64_t budget = slot.header().budget;
  const uint64_t room = slot.bytes() - from;
  pinned_->pin(slot.at(from), begin + bytes - from, budget == 0 ? room : std::min(room, budget));
  budget_.lock(id, pinned_->pinned(slot.at(0), slot.bytes()));
}

void SlotPool::learn(uint32_t slot, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  budget_.learn(slot, bytes + kBookBytes);
}

SlotPool::Memory SlotPool::memory() {
  const std::lock_guard lock(mutex_);
  const auto kept = made_ - static_cast<uint32_t>(free_.size()) - budget_.in_flight();
  return {kept, budget_.expected(), budget_.limit()};
}

// Until a batch has been seen, its size may be anything: half of the region is for the slots that
// are in flight then. Afterwards, far more than a batch takes costs nothing but address space.
uint64_t SlotPool::extent_bytes() const {
  const uint64_t unknown = whole_pages(region_.size() / 2 / (usual_in_flight_ + 2));
  if (budget_.expected() == 0) return unknown;
  return std::min(unknown, whole_pages(std::max(kSlotBytes, 64 * budget_.expected())));
}

std::optional<uint32_t> SlotPool::make(uint64_t num_samples) {
  uint64_t bytes = std::max(extent_bytes(), Slot::kMinBytes);
  while (!Slot::has_room(bytes, num_samples) && bytes < region_.size()) bytes *= 2;
  if (made_ == Control::kMaxSlots || bytes > region_.size() - used_) return std::nullopt;
  control_->set_extent(made_, {used_, bytes});
  used_ += bytes;
  return made_++;
}

void Lease::release(void* lease) {
  auto* self = static_cast<Lease*>(lease);
  if (self->references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  self->pool_->give_back(self->slot_);
  delete self;
}

}  // namespace stoker::detail
