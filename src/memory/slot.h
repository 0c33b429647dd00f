// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A slot is the shared memory of one batch: a header, the indices, the rows that workers write,
// and an open end for what has no fixed place. Works on memory it is handed.
//
// Process safety: the main process publishes a slot (one store of the ticket) and takes it back
// once its status is no longer kOpen. In between, workers claim rows with the ticket, make them
// their own, write them, and count them; one that finds all rows counted collates the batch and
// sets the status.
//
// Invariants: a slot is published again only after all rows of its generation are done, so that
// nobody writes to a generation that is over. Each row has one owner at a time, who alone writes it
// and counts it. Every word that workers change carries the generation, so that one that slept
// changes nothing of a later batch.
//
// A worker may die at any step. Nothing is lost, because nothing is known from a step taken alone:
// its rows and counts carry its name, and the supervisor gives up for it what it had not finished
// (disown). Until then the status stays kOpen: no batch is handed out with a row missing.
// model/slot_protocol.pml is this protocol for a model checker.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace stoker::detail {

// Zero, as in memory that was never used, is not open.
enum class SlotStatus : uint32_t { kReady, kOpen, kFailed, kIncomplete };

enum class RowState : uint8_t {
  kPending,
  kInRows,
  kSpilled,
  kFailed,   // ends the epoch; its record is a Failure
  kBad,      // another sample is to take its place; likewise
  kSkipped,  // was not run
};

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
  // Of a stream: the only worker that may claim it; else kAnyWorker. Stored and read like
  // num_samples.
  std::atomic<uint32_t> worker{0};
  // Whether one worker makes all of the batch; see Slot::is_claimed_whole. Likewise.
  std::atomic<uint32_t> whole{0};
  int64_t epoch = 0;
  uint64_t epoch_seed = 0;
  uint64_t first_position = 0;  // of row 0, in the epoch; of a stream, in that worker's part of it
  uint32_t has_positions = 0;   // whether those of the rows are given; else they follow the first
  uint64_t budget = 0;          // bytes that its rows, and its open end, may take; 0 is no limit

  // generation << 32 | next row. Main's release store (publish) pairs with the acquire in claim.
  alignas(64) std::atomic<uint64_t> ticket{0};

  // generation << 32 | who completes the batch, 0 if nobody yet; see Slot::take_completion.
  alignas(64) std::atomic<uint64_t> completer{0};
  std::atomic<uint32_t> cancelled{0};  // main sets it, workers skip; only a hint
  std::atomic<LayoutState> layout_state{LayoutState::kNone};
  std::atomic<uint64_t> open_used{0};      // bytes of the open end given out
  std::atomic<uint64_t> failures_used{0};  // .. and of what is kept free for failures
  // Whether samples that are fetched as a whole batch are now to be fetched each on its own. The
  // supervisor sets it before it disowns the worker that held the batch.
  std::atomic<uint32_t> one_by_one{0};
  // Main only writes it, before the ticket. A new layout goes to the other place, since a worker
  // may still be reading the kept one.
  uint32_t kept_layout = 0;

  // The completer's release pairs with main's acquire.
  std::atomic<SlotStatus> status{SlotStatus::kReady};
  // Of a stream: where a text lies that tells where it starts; main writes it. 0 if there is none.
  uint64_t stream_start = 0;
  // .. how many samples came, at most num_samples, and where a text lies that tells where it is
  // after them; the worker of the batch writes these.
  uint32_t fetched = 0;
  uint64_t stream_state = 0;
  // Written by the completer before the status.
  uint64_t finish_stamp = 0;   // order of completion, for in_order = false
  uint64_t result_layout = 0;  // offset of the layout of the batch
  uint64_t result_rows = 0;    // offset of its rows
  uint64_t failure = 0;        // offset of a Failure
};

struct RowRange {
  uint32_t first = 0;
  uint32_t count = 0;
};

// Who does something to a batch: worker w is owner w + 1, main the last one.
struct Hand {
  uint32_t generation;
  uint32_t owner;
};

// Where a batch comes from.
struct Origin {
  static constexpr uint32_t kAnyWorker = ~uint32_t{0};

  int64_t epoch = 0;
  uint64_t epoch_seed = 0;
  uint64_t first_position = 0;
  uint32_t worker = kAnyWorker;
  bool whole = false;  // its samples are fetched together
};

class Slot {
 public:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kLayoutBytes = 1 << 19;  // each of two; virtual, like all of a slot
  static constexpr uint64_t kFailureBytes = 256 << 10;
  static constexpr uint64_t kMinBytes = 4 << 20;

  static constexpr uint32_t kMostWorkers = 4096;

  // `base` is page-aligned and zero-filled when the slot is first used.
  Slot(std::byte* base, uint64_t bytes, uint32_t num_workers)
      : base_(base), bytes_(bytes), num_owners_(num_workers + 1) {}

  SlotHeader& header() const { return *reinterpret_cast<SlotHeader*>(base_); }
  std::byte* at(uint64_t offset) const { return base_ + offset; }
  uint64_t bytes() const { return bytes_; }

  // No more than there can be, so that what is reckoned from it lies in the slot whatever a
  // worker's code has written over the header.
  size_t num_samples() const {
    return std::min(header().num_samples.load(std::memory_order_acquire), most_samples());
  }
  // Arrays of num_samples entries. Those of a stream have only records.
  size_t* indices() const {
    return reinterpret_cast<size_t*>(base_ + arrays_begin()) + num_samples();
  }
  uint64_t* records() const { return reinterpret_cast<uint64_t*>(indices() + num_samples()); }
  uint64_t* positions() const { return records() + num_samples(); }
  // Where it is told how the row's sample failed, if it did and that was handled; 0 if not. Who
  // fetches the sample sets it.
  uint64_t* failures() const { return positions() + num_samples(); }
  // Of the sample of this row, in the epoch; of a stream, in that worker's part of it.
  uint64_t position(uint64_t row) const {
    return header().has_positions != 0 ? positions()[row] : header().first_position + row;
  }
  // The dataset's index of the sample of this row; of a stream, its number in that worker's part.
  size_t index(uint64_t row) const {
    return is_stream() ? header().first_position + row : indices()[row];
  }
  RowState state(uint64_t row) const;
  // Of the batch that the caller works on.
  Origin origin() const;
  // For whoever keeps the slot from being published again.
  uint32_t generation() const {
    return static_cast<uint32_t>(header().ticket.load(std::memory_order_relaxed) >> 32);
  }
  // Of a stream nothing is written, nor memory taken, for samples that do not come.
  bool is_stream() const {
    return header().worker.load(std::memory_order_acquire) != Origin::kAnyWorker;
  }
  // One worker claims, owns and counts the batch whole, as if it were row 0 alone: a batch that is
  // fetched at once must not be shared by two, even where one takes over from a third that died.
  // That worker settles row 0 last.
  bool is_claimed_whole() const { return header().whole.load(std::memory_order_acquire) != 0; }
  // How many rows are claimed one by one.
  uint32_t num_claimable() const {
    return is_claimed_whole() ? 1 : static_cast<uint32_t>(num_samples());
  }

  // Main's hand, and that of a worker.
  Hand main(uint32_t generation) const { return {generation, num_owners_}; }
  static Hand worker(uint32_t generation, uint32_t id) { return {generation, id + 1}; }

  // Offsets of the two layouts, and of the one that is fixed, if one is.
  uint64_t kept_layout() const { return kPage + (header().kept_layout & 1) * kLayoutBytes; }
  uint64_t new_layout() const { return kPage + (~header().kept_layout & 1) * kLayoutBytes; }
  std::optional<uint64_t> fixed_layout() const;

  // Where the books of the rows begin, behind which the rows lie: page-aligned, as those are, and
  // the same for every batch.
  static constexpr uint64_t books_begin() { return arrays_begin(); }
  uint64_t rows_begin() const;
  uint64_t rows_capacity() const { return within_budget(bytes_ / 2 - rows_begin()); }

  // Takes bytes of the open end, 64-byte aligned; nothing if it is full. Any process.
  std::optional<uint64_t> allocate(uint64_t size) const;
  // The same of the last kFailureBytes of the slot, where failures go that the open end has no
  // room for.
  std::optional<uint64_t> allocate_for_failure(uint64_t size) const;
  uint64_t open_capacity() const { return within_budget(bytes_ - bytes_ / 2 - kFailureBytes); }

  // A text in the open end; 0 if there is no room. Any process.
  uint64_t put_text(std::string_view text) const;
  std::string text(uint64_t offset) const;
  // For who reads offsets that a worker's code may have written over: whether so many bytes were
  // given out there, of the open end or of what is kept free for failures; whether such a layout
  // may lie there, and such rows.
  bool is_given_out(uint64_t offset, uint64_t size) const;
  bool may_be_layout(uint64_t offset, uint64_t size) const;
  bool may_be_rows(uint64_t offset, uint64_t size) const;

  // Main only. Opens the slot for a batch of these indices, whose positions in the epoch are those
  // given, or else follow the first one.
  void publish(std::span<const int64_t> indices, uint32_t generation, const Origin& origin,
               std::span<const uint64_t> positions = {}) const;
  // Main only. Opens the slot for a batch of up to that many samples of a worker's stream.
  void publish_stream(uint32_t num_samples, uint32_t generation, const Origin& origin) const;
  // Whether a slot of this size has room for the bookkeeping of n samples.
  static bool has_room(uint64_t bytes, uint64_t num_samples);

  // Makes a pending row that nobody owns one's own; false if another was first, or if that
  // generation is over. A claim of the ticket only says which rows to try.
  bool own(uint32_t row, Hand me) const;
  // Gives an own row its final state.
  void settle(uint32_t row, Hand me, RowState state) const;
  // Counts `count` further own rows as settled; true if the caller must complete the slot.
  bool finish(Hand me, uint32_t count) const;
  // True if all rows are counted and nobody completes the slot: from then on the caller does.
  bool take_completion(Hand me) const;
  // Claims, owns and skips all rows that nobody has claimed; how many those were. The caller counts
  // them. Main knows how many can be claimed in all, and need not believe the header.
  uint32_t skip_rest(Hand me, uint32_t num_claimable) const;
  uint32_t skip_rest(Hand me) const { return skip_rest(me, num_claimable()); }

  // Supervisor only, of a worker that is dead: what it had not finished is nobody's again.
  void disown(Hand dead) const;
  // Supervisor only: whether a worker that is dead, and not disowned yet, keeps the batch open.
  bool is_held_by(Hand dead) const;
  // Supervisor only, while the batch is open: nobody is to fetch the sample of this row any more;
  // its place in failures() tells why.
  void condemn(uint32_t row, uint32_t generation) const;
  bool is_condemned(uint32_t row) const;

 private:
  uint64_t within_budget(uint64_t bytes) const {
    return header().budget == 0 ? bytes : std::min(bytes, header().budget);
  }

  uint32_t most_samples() const {
    const uint64_t room = (bytes_ / 2 & ~(kPage - 1)) - arrays_begin();
    return static_cast<uint32_t>(std::min<uint64_t>(room / kBytesPerSample, UINT32_MAX));
  }

  void close() const;
  void open(uint32_t num_samples, uint32_t generation, const Origin& origin) const;

  static constexpr uint64_t kBytesPerSample = sizeof(size_t) + 4 * sizeof(uint64_t);
  static constexpr uint64_t kDoneBytes = 9 * kPage;
  static_assert(kDoneBytes >= (kMostWorkers + 1) * sizeof(uint64_t));
  static constexpr uint64_t done_begin() { return kPage + 2 * kLayoutBytes; }
  static constexpr uint64_t arrays_begin() { return done_begin() + kDoneBytes; }

  // One per row: generation << 32 | a mark | owner << 8 | whether it is condemned | state. The
  // owner's release in settle pairs with the acquire of whoever reads a state. Its place does not
  // depend on the number of samples: a worker that slept still finds the row's word there, of a
  // later generation, or at worst an index, which is none without the mark.
  std::atomic<uint64_t>& row_word(uint64_t row) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(base_ + arrays_begin())[row];
  }
  // One per owner, who alone writes it: generation << 32 | rows settled.
  std::atomic<uint64_t>& done_word(uint32_t owner) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(base_ + done_begin())[owner - 1];
  }
  bool all_done(uint32_t generation, uint64_t rows) const;
  bool elect(Hand me) const;

  std::byte* base_;
  uint64_t bytes_;
  uint32_t num_owners_;
};

constexpr uint64_t align64(uint64_t bytes) { return (bytes + 63) & ~uint64_t{63}; }

}  // namespace stoker::detail
