// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/replacements.h"

#include "loader/worker_report.h"
#include "memory/failure.h"

namespace stoker::detail {

bool Replacements::allow(WorkerRecord& worker) {
  if (limits_.max_restarts == 0) return false;
  if (const uint32_t epoch = control_.epochs().load(); epoch != epoch_) {
    epoch_ = epoch;
    restarts_ = 0;
    killers_.clear();
  }
  Final final = Final::kNoRestarts;
  if (has_ended_two(worker) && !condemn(worker)) {
    const bool whole = limits_.whole_batches || worker.progress.row.load() == Progress::kNoRow;
    final = whole ? Final::kBatchKilledTwice : Final::kKilledTwice;
  } else if (restarts_ == limits_.max_restarts) {
    final = Final::kRestartsSpent;
  } else {
    ++restarts_;
    return true;
  }
  worker.final.store(final, std::memory_order_relaxed);
  return false;
}

// Whether what it worked on had ended another worker before.
bool Replacements::has_ended_two(const WorkerRecord& worker) {
  const uint64_t claim = worker.claim.load(std::memory_order_acquire);
  // Its code may have written over the record.
  if (claim == WorkerRecord::kIdle || claim >> 32 >= Control::kMaxSlots) return false;
  const uint32_t row = worker.progress.row.load(std::memory_order_relaxed);
  const auto [slot, hand] = batch_of(worker);
  if (slot.bytes() == 0) return false;
  // Killed after its last sample, that one is not to blame.
  if (row != Progress::kNoRow && !slot.is_held_by(hand)) return false;
  return !killers_.insert(deed_of(worker)).second;
}

// A batch that is published again, in another slot, is the same deed.
Replacements::Deed Replacements::deed_of(const WorkerRecord& worker) {
  const uint32_t row = worker.progress.row.load(std::memory_order_relaxed);
  const auto [slot, hand] = batch_of(worker);
  const int64_t epoch = slot.header().epoch;
  if (slot.is_stream()) return {epoch, worker.claim.load(std::memory_order_relaxed), row};
  if (row < slot.num_samples()) return {epoch, slot.position(row), 0};
  return {epoch, slot.header().first_position, row};
}

// What it was at is on_error's from now on. Of a batch that was fetched as a whole, the samples are
// first fetched one by one, to see which of them it is. False if nothing can be done.
bool Replacements::condemn(WorkerRecord& worker) {
  const uint32_t row = worker.progress.row.load(std::memory_order_relaxed);
  const auto [slot, hand] = batch_of(worker);
  if (!limits_.condemns || row == Progress::kNoRow) return false;
  if (row == Progress::kAllRows) {
    killers_.erase(deed_of(worker));
    return slot.header().one_by_one.exchange(1) == 0;
  }
  if (row >= slot.num_samples()) return false;
  worker.final.store(Final::kCondemned, std::memory_order_relaxed);
  const size_t index = slot.indices()[row];
  slot.failures()[row] =
      store_failure(slot, {.worker_id = worker.id,
                           .pid = worker.pid.load(),
                           .index = index,
                           .type_name = "",
                           .text = report_death(worker.id, worker, index).what()});
  slot.condemn(row, hand.generation);
  return true;
}

std::pair<Slot, Hand> Replacements::batch_of(const WorkerRecord& worker) {
  const uint64_t claim = worker.claim.load(std::memory_order_acquire);
  return {control_.slot(static_cast<uint32_t>(claim >> 32)),
          Slot::worker(static_cast<uint32_t>(claim), worker.id)};
}

}  // namespace stoker::detail
