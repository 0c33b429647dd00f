// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The control block: which batches are published, who works on what, who sleeps and must be woken.
// Works on memory it is handed; waking is the caller's business (the functions say whom).
//
// Process safety: main publishes; workers claim; the supervisor reports deaths. A batch has a
// sequence number, which is also the generation of its slot; numbers wrap at 2^32.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "memory/slot.h"

namespace stoker::detail {

enum class WorkerState : uint32_t {
  kNone,        // not up yet: not forked, or not past what the loader itself does first
  kRunning,     // runs the user's code
  kClosing,     // was told to stop, and is in close_in_worker
  kInitFailed,  // worker_init_fn or open_in_worker threw; `text` says what
  kDead,        // ended, see wait_status; set by the supervisor
  kNoFork,      // could not be forked; wait_status is the errno
};

// Why a dead worker was not replaced.
enum class Final : uint32_t {
  kNoRestarts,        // nobody wanted it
  kRestartsSpent,     // max_restarts replacements were made in this epoch
  kKilledTwice,       // its sample had ended another worker before
  kBatchKilledTwice,  // .. its batch: one that is fetched as a whole, or that is being collated
  kCondemned,         // it was, and the sample, the second time, is left to on_error
};

// Whether the kernel killed processes for want of memory when a worker was killed by SIGKILL.
enum class OomKiller : uint32_t { kUnknown, kIdle, kAtWork };

// What of the user's a worker runs before its first sample.
enum class Setup : uint32_t { kInitFn, kOpenInWorker, kDone };

// What a worker is doing just now.
struct Progress {
  static constexpr uint32_t kNoRow = ~uint32_t{0};
  static constexpr uint32_t kAllRows = kNoRow - 1;
  // Whose sample it fetches; kAllRows while one call of `get_batch` fetches those of the whole
  // batch, kNoRow if it completes a batch.
  std::atomic<uint32_t> row{0};
  // When it began this row, in nanoseconds of the steady clock; 0 between claims, and if nobody
  // asks (FillOptions::timed).
  std::atomic<int64_t> since{0};
};

// Written by its worker, but for state, pid, wait_status and what comes after progress.
struct WorkerRecord {
  static constexpr uint64_t kIdle = ~uint64_t{0};

  explicit WorkerRecord(uint32_t of) : id(of) {}

  const uint32_t id;
  std::atomic<WorkerState> state{WorkerState::kNone};
  std::atomic<int32_t> pid{0};  // for messages: a worker's code may have written over it
  std::atomic<int32_t> wait_status{0};
  // What it is working on, or about to claim: written before the claim, so that a death at any
  // point can be told from it. slot << 32 | sequence; kIdle if nothing.
  std::atomic<uint64_t> claim{kIdle};
  Progress progress;
  // Set by the supervisor: it ended the worker for taking longer than so many seconds over one
  // sample; 0 if it did not.
  std::atomic<double> overdue{0};
  // .. why it was not replaced
  std::atomic<Final> final{Final::kNoRestarts};
  // .. and, of one killed by SIGKILL, what is known of memory: the limit of its control group (the
  // greatest number if there is none) and what was available, in bytes.
  std::atomic<OomKiller> oom_killer{OomKiller::kUnknown};
  std::atomic<uint64_t> memory_limit{0};
  std::atomic<uint64_t> memory_available{0};
  // By the worker again: what threw, of which type and with which text, if state is kInitFailed.
  std::atomic<Setup> setup{Setup::kInitFn};
  char type_name[256] = {};
  char text[2048] = {};

  void work_on(uint32_t slot, uint32_t sequence) {
    claim.store(uint64_t{slot} << 32 | sequence, std::memory_order_release);
  }
  // Supervisor only, before it forks a replacement.
  void renew();
};

struct Extent {
  std::atomic<uint64_t> offset{0};  // from the control block
  std::atomic<uint64_t> bytes{0};
};

struct Claim {
  uint32_t slot;
  uint32_t sequence;
  RowRange rows;
};

// How many batches are in flight.
struct InFlightLimit {
  uint32_t usual;
  uint32_t most;  // while batches are ready within microseconds
};

class Control {
 public:
  static constexpr uint32_t kMaxSlots = 1 << 14;

  // Bytes that a control block for this many workers and batches in flight takes.
  static uint64_t bytes_needed(uint32_t num_workers, uint32_t max_in_flight);
  // Builds one in zero-filled memory.
  static Control* create(std::byte* memory, uint32_t num_workers, uint32_t max_in_flight);

  uint32_t num_workers() const { return num_workers_; }
  // So many batches, the last ones published, can still be claimed.
  uint32_t ring_size() const { return ring_size_; }
  WorkerRecord& worker(uint32_t id);
  Slot slot(uint32_t id);
  // Main only.
  void set_extent(uint32_t slot, Extent&& extent);

  // Main only. Makes a slot that `Slot::publish` has opened known as the next batch.
  void publish(uint32_t slot);
  uint32_t published() const { return published_.load(std::memory_order_acquire); }
  // Main only. True if a worker sleeps that the last publish should wake.
  bool has_sleepers() const { return sleepers_.load(std::memory_order_seq_cst) > 0; }

  // Worker only. Claims rows of the oldest batch that has some left for it; nothing if there is
  // none.
  // `wanted(rest, n)` says how many rows of the `rest` unclaimed ones of n to take.
  template <class Wanted>
  std::optional<Claim> claim(WorkerRecord& me, Wanted wanted);

  // Worker only: sleeps on published_word() while it is `seen`, between these two.
  void begin_sleep() { sleepers_.fetch_add(1, std::memory_order_seq_cst); }
  void end_sleep() { sleepers_.fetch_sub(1, std::memory_order_seq_cst); }
  std::atomic<uint32_t>& published_word() { return published_; }

  // Worker only. Sets the slot's status; true if main waits for this batch and must be woken.
  bool complete(Slot slot, uint32_t sequence, SlotStatus status);

  // Main only: what it is waiting for. Its store pairs with the load in `complete`, so that either
  // main sees the status or the worker sees the wish.
  void want(uint32_t sequence) { wanted_.store(sequence, std::memory_order_seq_cst); }
  void want_any() { wanted_.store(kAny, std::memory_order_seq_cst); }
  void want_nothing() { wanted_.store(kNothing, std::memory_order_relaxed); }
  // Main sleeps on this; raise it, then wake.
  std::atomic<uint32_t>& events_word() { return events_; }
  void raise_event() { events_.fetch_add(1, std::memory_order_release); }
  // Supervisor and failing workers: something happened that main must look at.
  std::atomic<uint32_t>& troubles() { return troubles_; }

  std::atomic<uint32_t>& stop() { return stop_; }
  // Set by the supervisor once it is up.
  std::atomic<uint32_t>& supervised() { return supervised_; }

  // Supervisor only, of a worker that is dead and will be replaced: what it had claimed and not
  // finished is nobody's again, and its record is as new.
  void disown(uint32_t worker);
  // Calls `visit(claim)` for each open batch, with all rows of it that have been claimed. A batch
  // may be completed meanwhile.
  template <class Visit>
  void for_each_open(Visit visit);
  // Workers replaced so far. The supervisor counts.
  std::atomic<uint32_t>& restarts() { return restarts_; }
  // Main counts; the supervisor allows so many replacements in each.
  std::atomic<uint32_t>& epochs() { return epochs_; }

  // Main only, while no worker lives: forgets all workers and everything published.
  void reset();
  // Main only, while no worker lives: forgets all workers, so that others can take over from them.
  void forget_workers();

 private:
  static constexpr uint64_t kAny = ~uint64_t{0};
  static constexpr uint64_t kNothing = kAny - 1;

  Control(uint32_t num_workers, uint32_t ring_size);
  std::atomic<uint32_t>* ring();
  void advance(uint32_t head) {
    head_.compare_exchange_strong(head, head + 1, std::memory_order_acq_rel);
  }

  uint32_t num_workers_;
  uint32_t ring_size_;  // a power of two
  std::atomic<uint32_t> stop_{0};
  std::atomic<uint32_t> supervised_{0};
  std::atomic<uint32_t> troubles_{0};
  std::atomic<uint32_t> restarts_{0};
  std::atomic<uint32_t> epochs_{0};

  // Batches published so far. Main's release in publish pairs with the acquire in claim.
  alignas(64) std::atomic<uint32_t> published_{0};
  std::atomic<uint32_t> sleepers_{0};
  // The oldest batch that may have unclaimed rows; a hint that only grows.
  alignas(64) std::atomic<uint32_t> head_{0};
  alignas(64) std::atomic<uint32_t> events_{0};
  std::atomic<uint64_t> wanted_{kNothing};
  std::atomic<uint64_t> finished_{0};  // batches completed, for the order of completion
};

template <class Visit>
void Control::for_each_open(Visit visit) {
  // Not the ring: a batch of an epoch that was left may be out of it, and still be open.
  for (uint32_t id = 0; id < kMaxSlots && slot(id).bytes() > 0; ++id) {
    const SlotHeader& header = slot(id).header();
    const uint64_t ticket = header.ticket.load(std::memory_order_acquire);
    const uint32_t claimable = slot(id).num_claimable();
    // Last: if it is open now, nothing of a later generation was read above, or that shows.
    if (header.status.load(std::memory_order_acquire) != SlotStatus::kOpen) continue;
    const auto claimed = std::min(static_cast<uint32_t>(ticket), claimable);
    visit(Claim{id, static_cast<uint32_t>(ticket >> 32), {0, claimed}});
  }
}

template <class Wanted>
std::optional<Claim> Control::claim(WorkerRecord& me, Wanted wanted) {
  uint32_t sequence = head_.load(std::memory_order_acquire);
  const uint32_t published = published_.load(std::memory_order_acquire);
  while (static_cast<int32_t>(published - sequence) > 0) {
    const uint32_t id = ring()[sequence & (ring_size_ - 1)].load(std::memory_order_relaxed);
    SlotHeader& header = slot(id).header();
    uint64_t ticket = header.ticket.load(std::memory_order_acquire);
    const uint32_t n = slot(id).num_claimable();
    const uint32_t worker = header.worker.load(std::memory_order_acquire);
    const auto row = static_cast<uint32_t>(ticket);
    // Another generation: this batch was finished, and its slot used again, while head lagged.
    if (ticket >> 32 != sequence || row >= n) {
      advance(sequence++);
      continue;
    }
    if (worker != Origin::kAnyWorker && worker != me.id) {
      ++sequence;
      continue;
    }
    const uint32_t count = wanted(n - row, n);
    me.progress.row.store(row, std::memory_order_relaxed);
    me.work_on(id, sequence);
    if (header.ticket.compare_exchange_strong(ticket, ticket + count, std::memory_order_acq_rel)) {
      return Claim{id, sequence, {row, count}};
    }
  }
  me.claim.store(WorkerRecord::kIdle, std::memory_order_release);
  return std::nullopt;
}

}  // namespace stoker::detail
