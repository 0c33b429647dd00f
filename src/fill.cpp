// SPDX-License-Identifier: BSD-3-Clause
#include "fill.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

#include "failure.h"
#include "row_layout.h"
#include "worker_context.h"

namespace stoker::detail {

namespace {

bool fits(Slot slot, const RowLayout& layout) {
  const auto bytes = layout.rows_bytes(slot.num_samples());
  return bytes && *bytes <= slot.rows_capacity();
}

// The one of the batch before may have been damaged since.
bool kept_layout_suits(Slot slot, const FlatSample& sample) {
  if (!RowLayout::is_sound_at(slot, slot.kept_layout())) return false;
  const RowLayout kept(slot.at(slot.kept_layout()));
  return fits(slot, kept) && kept.matches(sample);
}

bool is_cancelled(Slot slot) {
  return slot.header().cancelled.load(std::memory_order_relaxed) != 0;
}

}  // namespace

uint32_t Filler::fill(Slot slot, uint32_t generation, RowRange rows, Progress& progress) {
  // Of a loader in whose `get` this one runs.
  const std::optional<WorkerInfo> outer = current_worker_info();
  const Hand me = hand(slot, generation);
  own(slot, me, rows);
  if (mine_.empty()) return 0;
  writer_.reset();
  const auto run = [&] {
    for (OwnRow& one : mine_) one.state = RowState::kSkipped;
    return fetcher_.whole_batches() ? fill_whole(slot, progress) : fill_one_by_one(slot, progress);
  };
  bool ok = run();
  if (random_.surprised()) {
    error_ = nullptr;
    ok = run();
  }
  progress.since.store(0, std::memory_order_relaxed);
  fetcher_.release();
  current_worker_info() = outer;
  // Not before: of a worker that dies until here, others fetch all of these rows again.
  for (const OwnRow& one : mine_) slot.settle(one.row, me, one.state);
  return static_cast<uint32_t>(mine_.size()) + (ok ? 0 : slot.skip_rest(me));
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
    const size_t index = slot.indices()[one.row];
    try {
      prepare(slot, one.row);
      const FlatSample& sample = fetcher_.get(index);
      random_.after();
      one.state = store(slot, one.row, sample);
    } catch (...) {
      one.state = fail(slot, one.row, index);
      return false;
    }
  }
  return true;
}

// The randomness of a batch that is fetched as a whole is that of its first sample.
bool Filler::fill_whole(Slot slot, Progress& progress) {
  if (is_cancelled(slot)) return true;
  std::vector<size_t> indices;
  for (const OwnRow& one : mine_) indices.push_back(slot.indices()[one.row]);
  begin(mine_.front().row, progress);
  size_t stored = 0;
  try {
    prepare(slot, mine_.front().row);
    const size_t came = fetcher_.fetch(indices);
    random_.after();
    if (came != indices.size()) {
      throw std::length_error("stoker: get_batch returned " + std::to_string(came) +
                              " samples for " + std::to_string(indices.size()) + " indices");
    }
    for (; stored < mine_.size(); ++stored) {
      mine_[stored].state = store(slot, mine_[stored].row, fetcher_.fetched(stored));
    }
  } catch (...) {
    // Before the first row is stored, which sample it was is not known.
    mine_[stored].state = fail(slot, mine_[stored].row, std::nullopt);
    return false;
  }
  return true;
}

void Filler::prepare(Slot slot, uint32_t row) {
  const uint64_t seed = sample_seed(slot.header().epoch_seed, slot.header().first_position + row);
  current_worker_info() = WorkerInfo{worker_id_.value_or(0), num_workers_, seed};
  random_.before(seed);
}

RowState Filler::fail(Slot slot, uint32_t row, std::optional<size_t> index) {
  error_ = std::current_exception();
  Failure failure = describe_exception(error_);
  failure.worker_id = worker_id_;
  failure.pid = getpid();
  failure.index = index;
  slot.records()[row] = store_failure(slot, failure);
  return RowState::kFailed;
}

RowState Filler::store(Slot slot, uint32_t row, const FlatSample& sample) {
  RowWriter* writer = this->writer(slot, sample);
  if (writer == nullptr || !writer->matches(sample)) {
    return spill(slot, row, sample);
  }
  if (!writer->write(sample, row)) {
    throw std::length_error("stoker: " + describe_too_large(slot, slot.header().open_used));
  }
  return RowState::kInRows;
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

// A record: the sample's own layout, then its row.
RowState Filler::spill(Slot slot, uint32_t row, const FlatSample& sample) {
  const std::vector<std::byte> bytes = RowLayout::encode(sample, fetcher_.leaf_paths());
  const RowLayout layout(bytes.data());
  const auto data = layout.rows_bytes(1);
  const auto record = data ? slot.allocate(bytes.size() + *data) : std::nullopt;
  if (record) {
    std::memcpy(slot.at(*record), bytes.data(), bytes.size());
    RowWriter writer(layout, slot, slot.at(*record + bytes.size()), 1);
    if (writer.matches(sample) && writer.write(sample, 0)) {
      slot.records()[row] = *record;
      return RowState::kSpilled;
    }
  }
  const auto all = layout.rows_bytes(slot.num_samples());
  const uint64_t open = slot.header().open_used;
  throw std::length_error("stoker: " + describe_too_large(slot, all ? std::max(*all, open) : all));
}

}  // namespace stoker::detail
