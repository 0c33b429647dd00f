// SPDX-License-Identifier: BSD-3-Clause
#include "fill.h"

#include <unistd.h>

#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

#include "failure.h"
#include "row_layout.h"
#include "worker_context.h"

namespace stoker::detail {

namespace {

void set_state(Slot slot, uint32_t row, RowState state) {
  slot.states()[row].store(state, std::memory_order_relaxed);
}

bool fits(Slot slot, const RowLayout& layout) {
  const auto bytes = layout.rows_bytes(slot.num_samples());
  return bytes && *bytes <= slot.rows_capacity();
}

bool is_cancelled(Slot slot) {
  return slot.header().cancelled.load(std::memory_order_relaxed) != 0;
}

}  // namespace

uint32_t Filler::fill(Slot slot, RowRange rows, std::atomic<uint32_t>& current) {
  // Of a loader in whose `get` this one runs.
  const std::optional<WorkerInfo> outer = current_worker_info();
  const auto run = [&] {
    return fetcher_.whole_batches() ? fill_whole(slot, rows) : fill_one_by_one(slot, rows, current);
  };
  writer_.reset();
  bool ok = run();
  if (random_.surprised()) {
    error_ = nullptr;
    ok = run();
  }
  fetcher_.release();
  current_worker_info() = outer;
  return rows.count + (ok ? 0 : slot.claim_rest());
}

// Rows behind a failed one are not run: the batch is lost, and the lowest failure is the one told.
bool Filler::fill_one_by_one(Slot slot, RowRange rows, std::atomic<uint32_t>& current) {
  for (uint32_t row = rows.first; row < rows.first + rows.count && !is_cancelled(slot); ++row) {
    current.store(row, std::memory_order_relaxed);
    const size_t index = slot.indices()[row];
    try {
      prepare(slot, row);
      const FlatSample& sample = fetcher_.get(index);
      random_.after();
      store(slot, row, sample);
    } catch (...) {
      fail(slot, row, index);
      return false;
    }
  }
  return true;
}

// The randomness of a batch that is fetched as a whole is that of its first sample.
bool Filler::fill_whole(Slot slot, RowRange rows) {
  if (is_cancelled(slot)) return true;
  const std::span<const size_t> indices(slot.indices() + rows.first, rows.count);
  uint32_t row = rows.first;
  try {
    prepare(slot, rows.first);
    const size_t came = fetcher_.fetch(indices);
    random_.after();
    if (came != rows.count) {
      throw std::length_error("stoker: get_batch returned " + std::to_string(came) +
                              " samples for " + std::to_string(rows.count) + " indices");
    }
    for (; row < rows.first + rows.count; ++row) {
      store(slot, row, fetcher_.fetched(row - rows.first));
    }
  } catch (...) {
    // Before the first row is stored, which sample it was is not known.
    fail(slot, row, std::nullopt);
    return false;
  }
  return true;
}

void Filler::prepare(Slot slot, uint32_t row) {
  const uint64_t seed = sample_seed(slot.header().epoch_seed, slot.header().first_position + row);
  current_worker_info() = WorkerInfo{worker_id_.value_or(0), num_workers_, seed};
  random_.before(seed);
}

void Filler::fail(Slot slot, uint32_t row, std::optional<size_t> index) {
  error_ = std::current_exception();
  Failure failure = describe_exception(error_);
  failure.worker_id = worker_id_;
  failure.pid = getpid();
  failure.index = index;
  slot.records()[row] = store_failure(slot, failure);
  set_state(slot, row, RowState::kFailed);
}

void Filler::store(Slot slot, uint32_t row, const FlatSample& sample) {
  RowWriter* writer = this->writer(slot, sample);
  if (writer == nullptr || !writer->matches(sample)) {
    spill(slot, row, sample);
    return;
  }
  if (!writer->write(sample, row)) {
    throw std::length_error("stoker: the strings of the batch do not fit its slot of " +
                            std::to_string(slot.bytes()) + " bytes; use a smaller batch_size");
  }
  set_state(slot, row, RowState::kInRows);
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
  if (seen == LayoutState::kTentative && fits(slot, RowLayout(slot.at(slot.kept_layout()))) &&
      RowLayout(slot.at(slot.kept_layout())).matches(sample)) {
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
void Filler::spill(Slot slot, uint32_t row, const FlatSample& sample) {
  const std::vector<std::byte> bytes = RowLayout::encode(sample, fetcher_.leaf_paths());
  const RowLayout layout(bytes.data());
  const auto data = layout.rows_bytes(1);
  const auto record = data ? slot.allocate(bytes.size() + *data) : std::nullopt;
  if (record) {
    std::memcpy(slot.at(*record), bytes.data(), bytes.size());
    RowWriter writer(layout, slot, slot.at(*record + bytes.size()), 1);
    if (writer.matches(sample) && writer.write(sample, 0)) {
      slot.records()[row] = *record;
      set_state(slot, row, RowState::kSpilled);
      return;
    }
  }
  throw std::length_error("stoker: the sample does not fit into its batch's slot of " +
                          std::to_string(slot.bytes()) + " bytes; use a smaller batch_size");
}

}  // namespace stoker::detail
