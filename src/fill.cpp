// SPDX-License-Identifier: BSD-3-Clause
#include "fill.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

#include "collate.h"
#include "failure.h"
#include "record.h"
#include "row_layout.h"
#include "worker_context.h"

namespace stoker::detail {

namespace {

bool fits(Slot slot, const RowLayout& layout) {
  const auto bytes = layout.rows_bytes(slot.num_samples());
  return bytes && *bytes <= slot.rows_capacity();
}

void require_all(size_t came, size_t wanted) {
  if (came == wanted) return;
  throw std::length_error("stoker: get_batch returned " + std::to_string(came) + " samples for " +
                          std::to_string(wanted) + " indices");
}

// The one of the batch before may have been damaged since.
bool kept_layout_suits(Slot slot, const FlatSample& sample) {
  if (!RowLayout::is_sound_at(slot, slot.kept_layout())) return false;
  const RowLayout kept(slot.at(slot.kept_layout()));
  return fits(slot, kept) &&
         RowWriter(kept, slot, slot.at(slot.rows_begin()), slot.num_samples()).matches(sample);
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
  writer_.reset();
  bool ok = run(slot, progress);
  if (random_.surprised()) {
    error_ = nullptr;
    ok = run(slot, progress);
  }
  progress.since.store(0, std::memory_order_relaxed);
  fetcher_.release();
  // Not before: of a worker that dies until here, others fetch all of these rows again.
  for (const OwnRow& one : mine_) slot.settle(one.row, me, one.state);
  return static_cast<uint32_t>(mine_.size()) + (ok ? 0 : slot.skip_rest(me));
}

bool Filler::run(Slot slot, Progress& progress) {
  for (OwnRow& one : mine_) one.state = RowState::kSkipped;
  if (fetcher_.is_stream()) return fill_from_stream(slot, progress);
  const bool ok =
      fetcher_.whole_batches() ? fill_whole(slot, progress) : fill_one_by_one(slot, progress);
  write_deferred(progress);
  return ok;
}

void Filler::own(Slot slot, Hand me, RowRange rows) {
  mine_.clear();
  for (uint32_t row = rows.first; row < rows.first + rows.count; ++row) {
    if (slot.own(row, me)) mine_.push_back({row, RowState::kPending});
  }
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
  const FlatSample* sample = get(slot, row, row);
  if (sample == nullptr) slot.records()[row] = failure_;
  if (sample == nullptr && on_error_ == OnError::kSubstitute) {
    sample = get_another(slot, row, progress);
  }
  if (sample == nullptr) {
    return on_error_ == OnError::kSkip ? RowState::kBad : RowState::kFailed;
  }
  try {
    return store(slot, row, *sample, progress);
  } catch (...) {
    return fail(slot, row, slot.indices()[row]);
  }
}

// Of the sample of row `source`, with the randomness of the row that it is for. Null if the dataset
// throws, or nobody is to try it any more; `failure_` tells.
const FlatSample* Filler::get(Slot slot, uint32_t row, uint32_t source) {
  const size_t index = slot.indices()[source];
  try {
    if (slot.is_condemned(source)) {
      failure_ = told_failure(slot, index);
      return nullptr;
    }
    prepare(slot, slot.header().first_position + row);
    const FlatSample* sample = nullptr;
    if (fetcher_.whole_batches()) {
      require_all(fetcher_.fetch(std::span(&index, 1)), 1);
      sample = &fetcher_.fetched(0);
    } else {
      sample = &fetcher_.get(index);
    }
    random_.after();
    return sample;
  } catch (...) {
    failure_ = keep_error(slot, index, std::current_exception());
    if (on_error_ != OnError::kRaise) tell_bad(slot, failure_);
    return nullptr;
  }
}

// Of the samples of this batch, the next one that does not throw.
const FlatSample* Filler::get_another(Slot slot, uint32_t row, Progress& progress) {
  const auto n = static_cast<uint32_t>(slot.num_samples());
  for (uint32_t i = 1; i < n; ++i) {
    const uint32_t other = (row + i) % n;
    begin(other, progress);
    const FlatSample* const sample = get(slot, row, other);
    if (sample != nullptr) return sample;
  }
  return nullptr;
}

// The randomness of a batch that is fetched as a whole is that of its first sample. Where the whole
// throws, and samples that do are to be handled, each is fetched on its own.
bool Filler::fill_whole(Slot slot, Progress& progress) {
  if (is_cancelled(slot)) return true;
  if (slot.header().one_by_one.load(std::memory_order_relaxed) != 0) {
    return fill_one_by_one(slot, progress);
  }
  std::vector<size_t> indices;
  for (const OwnRow& one : mine_) indices.push_back(slot.indices()[one.row]);
  begin(mine_.front().row, progress);
  size_t stored = 0;
  bool fetched = false;
  try {
    prepare(slot, slot.header().first_position + mine_.front().row);
    const bool done = gather(slot, indices);
    if (!done) require_all(fetcher_.fetch(indices), indices.size());
    random_.after();
    if (done) {
      for (OwnRow& one : mine_) one.state = RowState::kInRows;
      return true;
    }
    fetched = true;
    for (; stored < mine_.size(); ++stored) {
      mine_[stored].state = store(slot, mine_[stored].row, fetcher_.fetched(stored), progress);
    }
  } catch (...) {
    if (!fetched && on_error_ != OnError::kRaise) return fill_one_by_one(slot, progress);
    // Before the first row is stored, which sample it was is not known.
    mine_[stored].state = fail(slot, mine_[stored].row, std::nullopt);
    return false;
  }
  return true;
}

// Lets the dataset write all rows at once. The first sample says what they look like.
bool Filler::gather(Slot slot, std::span<const size_t> indices) {
  const uint32_t first = mine_.front().row;
  const bool is_run = mine_.back().row - first + 1 == mine_.size();
  if (!is_run || !fetcher_.gathers_rows()) return false;
  const FlatSample& sample = fetcher_.get(indices.front());
  RowWriter* const writer = this->writer(slot, sample);
  if (writer == nullptr || !writer->matches(sample)) return false;
  const auto columns = writer->columns_from(first);
  return columns && fetcher_.gather_rows(indices, *columns);
}

// Only this worker has rows of the batch, and all of them. Those for which no sample came stay
// skipped.
bool Filler::fill_from_stream(Slot slot, Progress& progress) {
  SlotHeader& header = slot.header();
  header.fetched = 0;
  if (is_cancelled(slot)) return true;
  try {
    begin(0, progress);
    if (stream_.must_open(slot.origin())) open_stream(slot);
    stream_.skip_to(slot.origin());
    for (OwnRow& one : mine_) {
      if (is_cancelled(slot)) return true;
      begin(one.row, progress);
      stream_.skip_others();
      prepare(slot, stream_.position(header.first_position + one.row));
      const FlatSample* const sample = stream_.next();
      if (sample == nullptr) break;
      one.state = store(slot, one.row, *sample, progress);
      write_deferred(progress);
      ++header.fetched;
    }
    header.stream_state = slot.put_text(stream_.state());
  } catch (...) {
    const uint32_t row = header.fetched;
    mine_[row].state = fail(slot, row, header.first_position + row);
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

RowState Filler::store(Slot slot, uint32_t row, const FlatSample& sample, Progress& progress) {
  write_deferred(progress);
  RowWriter* writer = this->writer(slot, sample);
  if (writer == nullptr || !writer->matches(sample)) {
    return spill(slot, row, sample);
  }
  // Its tensors may lie anywhere in memory. While they are fetched from there, so is the next
  // sample.
  if (writer->prefetch(sample, row)) {
    deferred_ = &sample;
    deferred_row_ = row;
    return RowState::kInRows;
  }
  if (!writer->write(sample, row)) {
    throw std::length_error("stoker: " + describe_too_large(slot, slot.header().open_used));
  }
  return RowState::kInRows;
}

// Should its memory be gone (of a file that was cut short), it is to blame, and not the next one.
void Filler::write_deferred(Progress& progress) {
  if (deferred_ == nullptr) return;
  const uint32_t current = progress.row.load(std::memory_order_relaxed);
  progress.row.store(deferred_row_, std::memory_order_relaxed);
  writer_->write(*std::exchange(deferred_, nullptr), deferred_row_);
  progress.row.store(current, std::memory_order_relaxed);
}

// Nothing while no layout is fixed.
RowWriter* Filler::writer(Slot slot, const FlatSample& sample) {
  if (!writer_) {
    auto layout = slot.fixed_layout();
    if (!layout) layout = fix_layout(slot, sample);
    if (!layout) return nullptr;
    writer_.emplace(RowLayout(slot.at(*layout)), slot, slot.at(slot.rows_begin()),
                    slot.num_samples());
  }
  return &*writer_;
}

// The first sample of a batch to be finished says what its rows look like. Returns the layout that
// is fixed then, by this worker or another; nothing if none is.
std::optional<uint64_t> Filler::fix_layout(Slot slot, const FlatSample& sample) {
  auto& state = slot.header().layout_state;
  LayoutState seen = state.load(std::memory_order_acquire);
  if (seen == LayoutState::kTentative && kept_layout_suits(slot, sample)) {
    state.compare_exchange_strong(seen, LayoutState::kFixedKept, std::memory_order_acq_rel);
    return slot.fixed_layout();
  }
  if ((seen == LayoutState::kTentative || seen == LayoutState::kNone) &&
      state.compare_exchange_strong(seen, LayoutState::kWriting, std::memory_order_acq_rel)) {
    LayoutState written = LayoutState::kNone;  // should the encoding throw
    try {
      written = write_layout(slot, sample);
    } catch (...) {
      state.store(written, std::memory_order_release);
      throw;
    }
    state.store(written, std::memory_order_release);
  }
  return slot.fixed_layout();
}

LayoutState Filler::write_layout(Slot slot, const FlatSample& sample) {
  const std::vector<std::byte> bytes = RowLayout::encode(sample, fetcher_.leaf_paths());
  if (bytes.size() > Slot::kLayoutBytes || !fits(slot, RowLayout(bytes.data()))) {
    return LayoutState::kUnfit;
  }
  std::memcpy(slot.at(slot.new_layout()), bytes.data(), bytes.size());
  return LayoutState::kFixedNew;
}

RowState Filler::spill(Slot slot, uint32_t row, const FlatSample& sample) {
  const std::vector<std::byte> bytes = RowLayout::encode(sample, fetcher_.leaf_paths());
  if (const auto record = store_record(slot, bytes, sample)) {
    slot.records()[row] = *record;
    return RowState::kSpilled;
  }
  const RowLayout layout(bytes.data());
  const auto all = layout.rows_bytes(slot.num_samples());
  const uint64_t open = slot.header().open_used;
  throw std::length_error("stoker: " + describe_too_large(slot, all ? std::max(*all, open) : all));
}

}  // namespace stoker::detail
