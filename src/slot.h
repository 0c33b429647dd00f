// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A slot is the shared memory of one batch: a header, the indices, the rows that workers write,
// and an open end for what has no fixed place. Works on memory it is handed.
//
// Process safety: the main process publishes a slot (one store of the ticket) and takes it back
// once its status is no longer kOpen. In between, workers claim rows with the ticket, write them,
// and count them in `done`; the one whose count completes the batch collates it and sets the
// status.
//
// Invariants: a slot is published again only after all rows of its generation are done, so that
// nobody writes to a generation that is over. A claim is valid only for the generation it was made
// for, since ticket and generation change together.
//
// If a worker dies while it holds rows, `done` never reaches the number of samples, and the status
// stays kOpen: no batch is ever handed out with a row missing.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace stoker::detail {

enum class SlotStatus : uint32_t { kOpen, kReady, kFailed };

enum class RowState : uint8_t { kPending, kInRows, kSpilled, kFailed };

// Who may say what the rows of this generation look like; see fill.h.
enum class LayoutState : uint32_t {
  kNone,       // nobody has said yet
  kTentative,  // the layout of the batch before is kept; no sample of this one has been seen
  kWriting,    // a worker writes a new one; samples finished meanwhile are spilled
  kFixedKept,  // samples that match the kept layout go to their rows
  kFixedNew,   // .. that match the new one
  kUnfit,      // the rows of such samples do not fit; all are spilled
};

struct SlotHeader {
  // Main only writes these, before the ticket that publishes them. A worker that slept may read
  // this one while it changes; its claim then fails, see Slot::publish.
  std::atomic<uint32_t> num_samples{0};
  uint64_t epoch_seed = 0;
  uint64_t first_position = 0;  // of row 0, in the epoch

  // generation << 32 | next row. Main's release store (publish) pairs with the acquire in claim.
  alignas(64) std::atomic<uint64_t> ticket{0};

  // Rows finished. Each release in finish pairs with the acquire of the last one.
  alignas(64) std::atomic<uint32_t> done{0};
  std::atomic<uint32_t> cancelled{0};  // main sets it, workers skip; only a hint
  std::atomic<LayoutState> layout_state{LayoutState::kNone};
  std::atomic<uint64_t> open_used{0};      // bytes of the open end given out
  std::atomic<uint64_t> failures_used{0};  // .. and of what is kept free for failures
  // Main only writes it, before the ticket. A new layout goes to the other place, since a worker
  // may still be reading the kept one.
  uint32_t kept_layout = 0;

  // The last finisher's release pairs with main's acquire.
  std::atomic<SlotStatus> status{SlotStatus::kReady};
  // Written by the last finisher before the status.
  uint64_t finish_stamp = 0;   // order of completion, for in_order = false
  uint64_t result_layout = 0;  // offset of the layout of the batch
  uint64_t result_rows = 0;    // offset of its rows
  uint64_t failure = 0;        // offset of a Failure
};

struct RowRange {
  uint32_t first = 0;
  uint32_t count = 0;
};

class Slot {
 public:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kLayoutBytes = 1 << 19;  // each of two; virtual, like all of a slot
  static constexpr uint64_t kFailureBytes = 256 << 10;
  static constexpr uint64_t kMinBytes = 4 << 20;

  // `base` is page-aligned and zero-filled when the slot is first used.
  Slot(std::byte* base, uint64_t bytes) : base_(base), bytes_(bytes) {}

  SlotHeader& header() const { return *reinterpret_cast<SlotHeader*>(base_); }
  std::byte* at(uint64_t offset) const { return base_ + offset; }
  uint64_t bytes() const { return bytes_; }

  size_t num_samples() const { return header().num_samples.load(std::memory_order_relaxed); }
  // Arrays of num_samples entries.
  size_t* indices() const { return reinterpret_cast<size_t*>(base_ + arrays_begin()); }
  uint64_t* records() const { return reinterpret_cast<uint64_t*>(indices() + num_samples()); }
  std::atomic<RowState>* states() const {
    return reinterpret_cast<std::atomic<RowState>*>(records() + num_samples());
  }

  // Offsets of the two layouts, and of the one that is fixed, if one is.
  uint64_t kept_layout() const { return kPage + header().kept_layout * kLayoutBytes; }
  uint64_t new_layout() const { return kPage + (1 - header().kept_layout) * kLayoutBytes; }
  std::optional<uint64_t> fixed_layout() const;

  uint64_t rows_begin() const;
  uint64_t rows_capacity() const { return bytes_ / 2 - rows_begin(); }

  // Takes bytes of the open end, 64-byte aligned; nothing if it is full. Any process.
  std::optional<uint64_t> allocate(uint64_t size) const;
  // The same of the last kFailureBytes of the slot, where failures go that the open end has no
  // room for.
  std::optional<uint64_t> allocate_for_failure(uint64_t size) const;
  uint64_t open_capacity() const { return bytes_ - bytes_ / 2 - kFailureBytes; }

  // Main only. Opens the slot for a batch of these indices.
  void publish(std::span<const int64_t> indices, uint32_t generation, uint64_t epoch_seed,
               uint64_t first_position) const;
  // Whether a slot of this size has room for the bookkeeping of n samples.
  static bool has_room(uint64_t bytes, uint64_t num_samples);

  // Gives `count` further rows as done; true if the caller is the last and must complete the slot.
  bool finish(uint32_t count) const;
  // Claims all rows that nobody has claimed, so that they are never run; how many those were.
  // The caller counts them as finished.
  uint32_t claim_rest() const;

 private:
  static constexpr uint64_t arrays_begin() { return kPage + 2 * kLayoutBytes; }

  std::byte* base_;
  uint64_t bytes_;
};

constexpr uint64_t align64(uint64_t bytes) { return (bytes + 63) & ~uint64_t{63}; }

}  // namespace stoker::detail
