// SPDX-License-Identifier: BSD-3-Clause
#include "memory/slot.h"

#include <stoker/detail/flat_sample.h>

#include <cstring>

namespace stoker::detail {

static_assert(sizeof(SlotHeader) <= Slot::kPage);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));

namespace {

constexpr uint64_t kNoRow = 0xffffffff;

constexpr uint64_t word(Hand hand, uint32_t low = 0) {
  return uint64_t{hand.generation} << 32 | low;
}
constexpr uint32_t kRowMark = uint32_t{1} << 31;
constexpr uint64_t kCondemned = 0x80;
constexpr uint64_t row_of(Hand hand, RowState state) {
  return word(hand, kRowMark | hand.owner << 8 | static_cast<uint32_t>(state));
}
constexpr uint64_t pending(uint32_t generation) {
  return row_of({generation, 0}, RowState::kPending);
}

constexpr uint64_t align_page(uint64_t bytes) {
  return (bytes + Slot::kPage - 1) & ~(Slot::kPage - 1);
}

bool is_between(uint64_t begin, uint64_t end, uint64_t offset, uint64_t size) {
  return offset >= begin && offset <= end && size <= end - offset;
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

bool Slot::is_given_out(uint64_t offset, uint64_t size) const {
  const uint64_t used = std::min(header().open_used.load(std::memory_order_relaxed),
                                 bytes_ - bytes_ / 2 - kFailureBytes);
  return is_between(bytes_ / 2, bytes_ / 2 + used, offset, size) ||
         is_between(bytes_ - kFailureBytes, bytes_, offset, size);
}

bool Slot::may_be_layout(uint64_t offset, uint64_t size) const {
  if (offset == kept_layout() || offset == new_layout()) return size <= kLayoutBytes;
  return offset % 64 == 0 && is_given_out(offset, size);
}

bool Slot::may_be_rows(uint64_t offset, uint64_t size) const {
  if (offset == rows_begin()) return size <= bytes_ / 2 - offset;
  return offset % 64 == 0 && is_given_out(offset, size);
}

uint64_t Slot::put_text(std::string_view text) const {
  const uint64_t size = text.size();
  const auto offset = allocate(sizeof size + size);
  if (!offset) return 0;
  std::memcpy(at(*offset), &size, sizeof size);
  std::memcpy(at(*offset + sizeof size), text.data(), size);
  return *offset;
}

std::string Slot::text(uint64_t offset) const {
  if (offset == 0) return {};
  uint64_t size = 0;
  if (!is_given_out(offset, sizeof size)) throw_damaged("a text");
  std::memcpy(&size, at(offset), sizeof size);
  if (!is_given_out(offset + sizeof size, size)) throw_damaged("a text");
  return {reinterpret_cast<const char*>(at(offset + sizeof size)), size};
}

void Slot::publish(std::span<const int64_t> indices, uint32_t generation, const Origin& origin,
                   std::span<const uint64_t> positions) const {
  const auto n = static_cast<uint32_t>(indices.size());
  close();
  header().num_samples.store(n, std::memory_order_release);
  for (uint32_t i = 0; i < n; ++i) {
    this->indices()[i] = static_cast<size_t>(indices[i]);
    row_word(i).store(pending(generation), std::memory_order_relaxed);
  }
  // Else not written: each line of memory that main writes and workers read costs a tiny batch
  // some hundredths of its time.
  std::copy(positions.begin(), positions.end(), this->positions());
  header().has_positions = positions.empty() ? 0 : 1;
  open(n, generation, origin);
}

void Slot::publish_stream(uint32_t num_samples, uint32_t generation, const Origin& origin) const {
  close();
  header().num_samples.store(num_samples, std::memory_order_release);
  row_word(0).store(pending(generation), std::memory_order_relaxed);
  header().has_positions = 0;
  open(num_samples, generation, origin);
}

// Nothing can be claimed any more: a worker that read the old ticket and reads the new number of
// samples must fail. This store comes before the release of that number, which pairs with the
// acquire in Control::claim, whose compare-exchange then finds it.
void Slot::close() const {
  std::atomic<uint64_t>& ticket = header().ticket;
  ticket.store(ticket.load(std::memory_order_relaxed) | kNoRow, std::memory_order_relaxed);
}

void Slot::open(uint32_t num_samples, uint32_t generation, const Origin& origin) const {
  SlotHeader& h = header();
  h.worker.store(origin.worker, std::memory_order_release);
  const bool is_stream = origin.worker != Origin::kAnyWorker;
  h.whole.store(origin.whole || is_stream ? 1 : 0, std::memory_order_release);
  h.epoch = origin.epoch;
  h.epoch_seed = origin.epoch_seed;
  h.first_position = origin.first_position;
  h.fetched = num_samples;
  h.stream_start = h.stream_state = 0;
  h.completer.store(uint64_t{generation} << 32, std::memory_order_relaxed);
  h.cancelled.store(0, std::memory_order_relaxed);
  h.open_used.store(0, std::memory_order_relaxed);
  h.failures_used.store(0, std::memory_order_relaxed);
  h.one_by_one.store(0, std::memory_order_relaxed);
  // The layout of the batch before is likely to be right again.
  const LayoutState before = h.layout_state.load(std::memory_order_relaxed);
  if (before == LayoutState::kFixedNew) h.kept_layout = ~h.kept_layout & 1;
  const bool kept = before == LayoutState::kFixedNew || before == LayoutState::kFixedKept ||
                    before == LayoutState::kTentative;
  h.layout_state.store(kept ? LayoutState::kTentative : LayoutState::kNone,
                       std::memory_order_relaxed);
  // Whoever finds it open finds this generation's words: pairs with the acquire in for_each_open
  // and in disown.
  h.status.store(SlotStatus::kOpen, std::memory_order_release);
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

Origin Slot::origin() const {
  const SlotHeader& h = header();
  return {h.epoch, h.epoch_seed, h.first_position, h.worker.load(std::memory_order_relaxed),
          is_claimed_whole()};
}

RowState Slot::state(uint64_t row) const {
  return static_cast<RowState>(row_word(row).load(std::memory_order_acquire) & (kCondemned - 1));
}

bool Slot::own(uint32_t row, Hand me) const {
  uint64_t nobodys = pending(me.generation);
  const auto take = [&] {
    return row_word(row).compare_exchange_strong(
        nobodys, row_of(me, RowState::kPending) | (nobodys & kCondemned),
        std::memory_order_acq_rel);
  };
  return take() || (nobodys == (pending(me.generation) | kCondemned) && take());
}

// Condemned in between, its sample may end a third worker, no more.
void Slot::settle(uint32_t row, Hand me, RowState state) const {
  const uint64_t condemned = row_word(row).load(std::memory_order_relaxed) & kCondemned;
  row_word(row).store(row_of(me, state) | condemned, std::memory_order_release);
}

// Their number is read first: once these rows are counted, the slot may be another batch's.
bool Slot::finish(Hand me, uint32_t count) const {
  const uint32_t all = num_claimable();
  const uint64_t before = done_word(me.owner).load(std::memory_order_relaxed);
  const auto so_far = before >> 32 == me.generation ? static_cast<uint32_t>(before) : 0;
  // seq_cst: of two that count at once, at least one sees the other's.
  done_word(me.owner).store(word(me, so_far + count), std::memory_order_seq_cst);
  return all_done(me.generation, all) && elect(me);
}

bool Slot::take_completion(Hand me) const {
  return all_done(me.generation, num_claimable()) && elect(me);
}

bool Slot::all_done(uint32_t generation, uint64_t rows) const {
  uint64_t sum = 0;
  for (uint32_t owner = 1; owner <= num_owners_; ++owner) {
    const uint64_t done = done_word(owner).load(std::memory_order_seq_cst);
    if (done >> 32 == generation) sum += static_cast<uint32_t>(done);
  }
  return sum == rows;
}

bool Slot::elect(Hand me) const {
  uint64_t nobody = word(me);
  return header().completer.compare_exchange_strong(nobody, word(me, me.owner),
                                                    std::memory_order_acq_rel);
}

uint32_t Slot::skip_rest(Hand me, uint32_t num_claimable) const {
  std::atomic<uint64_t>& ticket = header().ticket;
  uint64_t seen = ticket.load(std::memory_order_acquire);
  do {
    if (seen >> 32 != me.generation || static_cast<uint32_t>(seen) >= num_claimable) return 0;
  } while (!ticket.compare_exchange_weak(seen, word(me, num_claimable), std::memory_order_acq_rel));
  uint32_t skipped = 0;
  for (auto row = static_cast<uint32_t>(seen); row < num_claimable; ++row) {
    if (!own(row, me)) continue;
    settle(row, me, RowState::kSkipped);
    ++skipped;
  }
  return skipped;
}

void Slot::disown(Hand dead) const {
  uint32_t settled = 0;
  for (uint64_t row = 0; row < num_claimable(); ++row) {
    const uint64_t seen = row_word(row).load(std::memory_order_acquire);
    if (seen >> 8 != row_of(dead, RowState::kPending) >> 8) continue;
    if (state(row) == RowState::kPending) {
      row_word(row).store(pending(dead.generation) | (seen & kCondemned),
                          std::memory_order_release);
    } else {
      ++settled;
    }
  }
  // It may have died before it counted them.
  if (settled > 0) done_word(dead.owner).store(word(dead, settled), std::memory_order_seq_cst);
  uint64_t its = word(dead, dead.owner);
  if (header().status.load(std::memory_order_acquire) == SlotStatus::kOpen) {
    header().completer.compare_exchange_strong(its, word(dead), std::memory_order_acq_rel);
  }
}

bool Slot::is_held_by(Hand dead) const {
  for (uint64_t row = 0; row < num_claimable(); ++row) {
    const uint64_t seen = row_word(row).load(std::memory_order_acquire);
    if ((seen & ~kCondemned) == row_of(dead, RowState::kPending)) return true;
  }
  return false;
}

void Slot::condemn(uint32_t row, uint32_t generation) const {
  std::atomic<uint64_t>& mine = row_word(row);
  uint64_t seen = mine.load(std::memory_order_relaxed);
  while (seen >> 32 == generation && (seen & kRowMark) != 0 &&
         !mine.compare_exchange_weak(seen, seen | kCondemned, std::memory_order_release)) {
  }
}

// Pairs with the release in condemn: who finds it condemned finds why.
bool Slot::is_condemned(uint32_t row) const {
  return (row_word(row).load(std::memory_order_acquire) & kCondemned) != 0;
}

}  // namespace stoker::detail
