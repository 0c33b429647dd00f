// SPDX-License-Identifier: BSD-3-Clause
#include "slot.h"

namespace stoker::detail {

static_assert(sizeof(SlotHeader) <= Slot::kPage);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<RowState>::is_always_lock_free && sizeof(std::atomic<RowState>) == 1);

namespace {

constexpr uint64_t kNoRow = 0xffffffff;
constexpr uint64_t kBytesPerSample = sizeof(size_t) + sizeof(uint64_t) + sizeof(RowState);

constexpr uint64_t align_page(uint64_t bytes) {
  return (bytes + Slot::kPage - 1) & ~(Slot::kPage - 1);
}

std::optional<uint64_t> take(std::atomic<uint64_t>& used, uint64_t size, uint64_t capacity) {
  if (size > capacity) return std::nullopt;
  const uint64_t begin = used.fetch_add(align64(size), std::memory_order_relaxed);
  if (begin > capacity - size) return std::nullopt;
  return begin;
}

}  // namespace

uint64_t Slot::rows_begin() const {
  return align_page(arrays_begin() + num_samples() * kBytesPerSample);
}

bool Slot::has_room(uint64_t bytes, uint64_t num_samples) {
  return align_page(arrays_begin() + num_samples * kBytesPerSample) <= bytes / 2;
}

std::optional<uint64_t> Slot::allocate(uint64_t size) const {
  const auto begin = take(header().open_used, size, open_capacity());
  if (!begin) return std::nullopt;
  return bytes_ / 2 + *begin;
}

std::optional<uint64_t> Slot::allocate_for_failure(uint64_t size) const {
  const auto begin = take(header().failures_used, size, kFailureBytes);
  if (!begin) return std::nullopt;
  return bytes_ - kFailureBytes + *begin;
}

void Slot::publish(std::span<const int64_t> indices, uint32_t generation, uint64_t epoch_seed,
                   uint64_t first_position) const {
  SlotHeader& h = header();
  // First nothing can be claimed any more: a worker that read the old ticket and reads the new
  // number of samples must fail. This store comes before that release, which pairs with the
  // acquire in Control::claim, whose compare-exchange then finds it.
  h.ticket.store(h.ticket.load(std::memory_order_relaxed) | kNoRow, std::memory_order_relaxed);
  h.num_samples.store(static_cast<uint32_t>(indices.size()), std::memory_order_release);
  h.epoch_seed = epoch_seed;
  h.first_position = first_position;
  for (size_t i = 0; i < indices.size(); ++i) {
    this->indices()[i] = static_cast<size_t>(indices[i]);
    states()[i].store(RowState::kPending, std::memory_order_relaxed);
  }
  h.done.store(0, std::memory_order_relaxed);
  h.cancelled.store(0, std::memory_order_relaxed);
  h.open_used.store(0, std::memory_order_relaxed);
  h.failures_used.store(0, std::memory_order_relaxed);
  // The layout of the batch before is likely to be right again.
  const LayoutState before = h.layout_state.load(std::memory_order_relaxed);
  if (before == LayoutState::kFixedNew) h.kept_layout = 1 - h.kept_layout;
  const bool kept = before == LayoutState::kFixedNew || before == LayoutState::kFixedKept ||
                    before == LayoutState::kTentative;
  h.layout_state.store(kept ? LayoutState::kTentative : LayoutState::kNone,
                       std::memory_order_relaxed);
  h.status.store(SlotStatus::kOpen, std::memory_order_relaxed);
  h.ticket.store(uint64_t{generation} << 32, std::memory_order_release);
}

std::optional<uint64_t> Slot::fixed_layout() const {
  switch (header().layout_state.load(std::memory_order_acquire)) {
    case LayoutState::kFixedKept:
      return kept_layout();
    case LayoutState::kFixedNew:
      return new_layout();
    default:
      return std::nullopt;
  }
}

// The size is read first: once these rows are counted, the slot may be another batch's.
bool Slot::finish(uint32_t count) const {
  const size_t all = num_samples();
  return header().done.fetch_add(count, std::memory_order_acq_rel) + count == all;
}

uint32_t Slot::claim_rest() const {
  SlotHeader& h = header();
  uint64_t ticket = h.ticket.load(std::memory_order_acquire);
  for (;;) {
    const auto row = static_cast<uint32_t>(ticket);
    const auto rest = static_cast<uint32_t>(num_samples()) - row;
    if (rest == 0) return 0;
    if (h.ticket.compare_exchange_weak(ticket, ticket + rest, std::memory_order_acq_rel)) {
      return rest;
    }
  }
}

}  // namespace stoker::detail
