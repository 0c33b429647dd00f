// SPDX-License-Identifier: BSD-3-Clause
#include "worker/fill.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

#include "memory/failure.h"
#include "worker/collate.h"
#include "worker/worker_context.h"

namespace stoker::detail {

namespace {

void require_all(size_t came, size_t wanted) {
  if (came == wanted) return;
  throw std::length_error("stoker: get_batch returned " + std::to_string(came) + " samples for " +
                          std::to_string(wanted) + " indices");
}

bool is_cancelled(Slot slot) {
  return slot.header().cancelled.load(std::memory_order_relaxed) != 0;
}

}  // namespace

FillOptions fill_options(const DataLoaderOptions& options) {
  return {.timed = options.sample_timeout.count() > 0,
          .shard = options.shard,
          .batch_size = static_cast<uint64_t>(options.batch_size),
          .on_error = options.on_error};
}

Filler::Filler(Fetcher& fetcher, std::optional<int64_t> worker_id, int64_t num_workers,
               FillOptions options)
    : fetcher_(fetcher),
      worker_id_(worker_id),
      num_workers_(num_workers),
      store_(fetcher),
      stream_(fetcher, static_cast<uint32_t>(worker_id.value_or(0)),
              static_cast<uint32_t>(std::max<int64_t>(num_workers, 1)), options.shard,
              options.batch_size),
      on_error_(options.on_error),
      timed_(options.timed) {
  // What a stream has yielded cannot be fetched again.
  if (fetcher.is_stream()) random_.always();
}

WorkerInfo Filler::info(uint64_t seed) const {
  return {worker_id_.value_or(0), num_workers_, seed, fetcher_.any_dataset()};
}

void Filler::open() {
  if (opened_) return;
  const WorkerInfoScope told(info(0));
  fetcher_.open_in_worker(info(0));
  opened_ = true;
}

uint32_t Filler::fill(Slot slot, uint32_t generation, RowRange rows, Progress& progress) {
  const WorkerInfoScope told(info(0));
  const Hand me = hand(slot, generation);
  own(slot, me, rows);
  if (mine_.empty()) return 0;
  store_.begin(slot);
  bool ok = run(slot, progress);
  const bool overwrote = store_.overwrote();
  if (random_.surprised() || overwrote) {
    error_ = nullptr;
    ok = run(slot, progress);
  }
  progress.since.store(0, std::memory_order_relaxed);
  fetcher_.release();
  // Not before: of a worker that dies until here, others fetch all of these rows again.
  for (size_t i = mine_.size(); i-- > 0;) slot.settle(mine_[i].row, me, mine_[i].state);
  const auto claimed = slot.is_claimed_whole() ? 1 : static_cast<uint32_t>(mine_.size());
  return claimed + (ok ? 0 : slot.skip_rest(me));
}

bool Filler::run(Slot slot, Progress& progress) {
  for (OwnRow& one : mine_) {
    one.state = RowState::kSkipped;
    if (on_error_ != OnError::kRaise && !slot.is_condemned(one.row)) slot.failures()[one.row] = 0;
  }
  failure_ = 0;
  if (fetcher_.is_stream()) return fill_from_stream(slot, progress);
  const bool ok =
      fetcher_.whole_batches() ? fill_whole(slot, progress) : fill_one_by_one(slot, progress);
  store_.finish(progress);
  return ok;
}

void Filler::own(Slot slot, Hand me, RowRange rows) {
  mine_.clear();
  for (uint32_t row = rows.first; row < rows.first + rows.count; ++row) {
    if (slot.own(row, me)) mine_.push_back({row, RowState::kPending});
  }
  // With its first row, all of the batch; the rows of a stream are added as they come.
  if (mine_.empty() || !slot.is_claimed_whole() || slot.is_stream()) return;
  const auto n = static_cast<uint32_t>(slot.num_samples());
  for (uint32_t row = 1; row < n; ++row) mine_.push_back({row, RowState::kPending});
}

void Filler::begin(uint32_t row, Progress& progress) const {
  progress.row.store(row, std::memory_order_relaxed);
  if (!timed_) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  progress.since.store(std::chrono::nanoseconds(now).count(), std::memory_order_relaxed);
}

// Rows behind a failed one are not run: the batch is lost, and the lowest failure is the one told.
bool Filler::fill_one_by_one(Slot slot, Progress& progress) {
  for (OwnRow& one : mine_) {
    if (is_cancelled(slot)) break;
    begin(one.row, progress);
    one.state = fill_row(slot, one.row, progress);
    if (one.state == RowState::kFailed) return false;
  }
  return true;
}

RowState Filler::fill_row(Slot slot, uint32_t row, Progress& progress) {
  const FlatSample* sample = get(slot, row, row, progress);
  if (sample == nullptr) slot.records()[row] = slot.failures()[row] = failure_;
  if (sample == nullptr && on_error_ == OnError::kSubstitute) {
    sample = get_another(slot, row, progress);
  }
  if (sample == nullptr) {
    return on_error_ == OnError::kSkip ? RowState::kBad : RowState::kFailed;
  }
  try {
    return store_.store(row, *sample, progress);
  } catch (...) {
    return fail(slot, row, slot.indices()[row]);
  }
}

// Of the sample of row `source`, with the randomness of the row that it is for. Null if the dataset
// throws, or nobody is to try it any more; `failure_` tells.
const FlatSample* Filler::get(Slot slot, uint32_t row, uint32_t source, Progress& progress) {
  const size_t index = slot.indices()[source];
  try {
    if (slot.is_condemned(source)) {
      failure_ = slot.failures()[source];
      return nullptr;
    }
    prepare(slot, slot.position(row));
    const FlatSample* sample = nullptr;
    if (fetcher_.whole_batches()) {
      // The fetch drops the batch before, in which the sample may lie that waits to be written.
      store_.finish(progress);
      require_all(fetcher_.fetch(std::span(&index, 1)), 1);
      sample = &fetcher_.fetched(0);
    } else {
      sample = &fetcher_.get(index);
    }
    random_.after();
    return sample;
  } catch (...) {
    failure_ = keep_error(slot, index, std::current_exception());
    return nullptr;
  }
}

// Of the samples of this batch, the next one that does not throw.
const FlatSample* Filler::get_another(Slot slot, uint32_t row, Progress& progress) {
  const auto n = static_cast<uint32_t>(slot.num_samples());
  for (uint32_t i = 1; i < n; ++i) {
    const uint32_t other = (row + i) % n;
    begin(other, progress);
    const FlatSample* const sample = get(slot, row, other, progress);
    if (sample != nullptr) return sample;
  }
  return nullptr;
}

// Where a batch ended two workers, each of its samples is fetched on its own first, to find the one
// that did it. If none did (somebody kills workers), the batch is fetched whole after all: its
// bytes must not depend on who died.
bool Filler::fill_whole(Slot slot, Progress& progress) {
  if (slot.header().one_by_one.load(std::memory_order_relaxed) != 0) {
    const bool ok = fill_one_by_one(slot, progress);
    if (!ok || failure_ != 0) return ok;
    store_.finish(progress);
  }
  return fetch_whole(slot, progress);
}

// The randomness of a batch that is fetched as a whole is that of its first sample. Where the whole
// throws, and samples that do are to be handled, each is fetched on its own.
bool Filler::fetch_whole(Slot slot, Progress& progress) {
  if (is_cancelled(slot)) return true;
  size_t stored = 0;
  bool fetched = false;
  try {
    std::vector<size_t> indices;
    for (const OwnRow& one : mine_) indices.push_back(slot.indices()[one.row]);
    begin(Progress::kAllRows, progress);
    const uint32_t first = mine_.front().row;
    prepare(slot, slot.position(first));
    const bool is_run = mine_.back().row - first + 1 == mine_.size();
    const bool done = is_run && store_.gather(first, indices);
    if (!done) require_all(fetcher_.fetch(indices), indices.size());
    random_.after();
    if (done) {
      for (OwnRow& one : mine_) one.state = RowState::kInRows;
      return true;
    }
    fetched = true;
    for (; stored < mine_.size(); ++stored) {
      mine_[stored].state = store_.store(mine_[stored].row, fetcher_.fetched(stored), progress);
    }
  } catch (...) {
    if (!fetched && on_error_ != OnError::kRaise) return fill_one_by_one(slot, progress);
    // Before the first row is stored, which sample it was is not known.
    mine_[stored].state = fail(slot, mine_[stored].row, std::nullopt);
    return false;
  }
  return true;
}

// Row 0 stands for the batch, until it has a sample; each further row is added with its own.
bool Filler::fill_from_stream(Slot slot, Progress& progress) {
  SlotHeader& header = slot.header();
  header.fetched = 0;
  mine_.resize(1);
  if (is_cancelled(slot)) return true;
  try {
    begin(0, progress);
    if (stream_.must_open(slot.origin())) open_stream(slot);
    stream_.skip_to(slot.origin());
    const auto n = static_cast<uint32_t>(slot.num_samples());
    for (uint32_t row = 0; row < n; ++row) {
      if (is_cancelled(slot)) return true;
      begin(row, progress);
      stream_.skip_others();
      prepare(slot, stream_.position(header.first_position + row));
      const FlatSample* const sample = stream_.next();
      if (sample == nullptr) break;
      if (row > 0) mine_.push_back({row, RowState::kSkipped});
      mine_.back().state = store_.store(row, *sample, progress);
      store_.finish(progress);
      ++header.fetched;
    }
    header.stream_state = slot.put_text(stream_.state());
  } catch (...) {
    const uint32_t row = header.fetched;
    const bool between = row == slot.num_samples();  // behind the last sample: in state_dict
    mine_.front().state =
        fail(slot, 0, between ? std::nullopt : std::optional<size_t>(header.first_position + row));
    return false;
  }
  return true;
}

// The same randomness in all workers: a stream that is shuffled, then shared by `worker_info()`, is
// shuffled alike everywhere.
void Filler::open_stream(Slot slot) {
  prepare(slot, ~uint64_t{0});
  stream_.open(slot.origin(), slot.text(slot.header().stream_start));
}

void Filler::prepare(Slot slot, uint64_t position) {
  const SlotHeader& header = slot.header();
  const uint64_t seed = sample_seed(header.epoch_seed, position);
  current_worker_info()->seed = seed;
  if (!fetcher_.is_stream() && epoch_ != header.epoch) {
    epoch_ = header.epoch;
    fetcher_.set_epoch(header.epoch);
  }
  random_.before(seed);
}

SlotStatus Filler::complete(Slot slot) {
  if (fetcher_.form() != BatchForm::kCollated) return collate(slot, fetcher_, worker_id_);
  const SlotHeader& header = slot.header();
  const uint64_t position =
      fetcher_.is_stream() ? stream_.position(header.first_position) : header.first_position;
  // Not the seed of the first sample.
  const uint64_t seed = sample_seed(~header.epoch_seed, position);
  const WorkerInfoScope told(info(seed));
  random_.begin_other(seed);
  SlotStatus status = SlotStatus::kFailed;
  try {
    status = collate(slot, fetcher_, worker_id_);
  } catch (const CollateFunctionThrew& thrown) {
    slot.header().failure = keep_error(slot, std::nullopt, thrown.error);
  }
  random_.end_other();
  fetcher_.release();
  return status;
}

RowState Filler::fail(Slot slot, uint32_t row, std::optional<size_t> index) {
  slot.records()[row] = keep_error(slot, index, std::current_exception());
  return RowState::kFailed;
}

uint64_t Filler::keep_error(Slot slot, std::optional<size_t> index,
                            const std::exception_ptr& error) {
  error_ = error;
  Failure failure = describe_exception(error_);
  failure.worker_id = worker_id_;
  failure.pid = getpid();
  failure.index = index;
  return store_failure(slot, failure);
}

}  // namespace stoker::detail
