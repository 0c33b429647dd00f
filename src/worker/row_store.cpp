// SPDX-License-Identifier: BSD-3-Clause
#include "worker/row_store.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "memory/failure.h"
#include "memory/record.h"
#include "memory/row_layout.h"

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
  return fits(slot, kept) &&
         RowWriter(kept, slot, slot.at(slot.rows_begin()), slot.num_samples()).matches(sample);
}

}  // namespace

void RowStore::begin(Slot slot) {
  slot_.emplace(slot);
  writer_.reset();
  waiting_ = nullptr;
}

RowState RowStore::store(uint32_t row, const FlatSample& sample, Progress& progress) {
  const bool same_memory = waiting_ != nullptr && writer_->shares_memory(*waiting_, sample);
  // The same sample twice in a row may well be the same memory.
  if (same_memory && slot_->index(row) != slot_->index(waiting_row_)) {
    waits_ = false;
    overwrote_ = true;
  }
  finish(progress);
  RowWriter* const writer = this->writer(sample);
  if (writer == nullptr || !writer->matches(sample)) return spill(row, sample);
  // Its tensors may lie anywhere in memory. While they are fetched from there, so is the next
  // sample.
  if (waits_ && writer->prefetch(sample, row)) {
    waiting_ = &sample;
    waiting_row_ = row;
    return RowState::kInRows;
  }
  if (!writer->write(sample, row)) {
    throw std::length_error("stoker: " + describe_too_large(*slot_, slot_->header().open_used));
  }
  return RowState::kInRows;
}

// Should its memory be gone (of a file that was cut short), it is to blame, and not the next one.
void RowStore::finish(Progress& progress) {
  if (waiting_ == nullptr) return;
  const uint32_t current = progress.row.load(std::memory_order_relaxed);
  progress.row.store(waiting_row_, std::memory_order_relaxed);
  writer_->write(*std::exchange(waiting_, nullptr), waiting_row_);
  progress.row.store(current, std::memory_order_relaxed);
}

// The first sample says what they look like.
bool RowStore::gather(uint32_t first_row, std::span<const size_t> indices) {
  if (!fetcher_.gathers_rows()) return false;
  const FlatSample& sample = fetcher_.get(indices.front());
  RowWriter* const writer = this->writer(sample);
  if (writer == nullptr || !writer->matches(sample)) return false;
  const auto columns = writer->columns_from(first_row);
  return columns && fetcher_.gather_rows(indices, *columns);
}

// Nothing while no layout is fixed.
RowWriter* RowStore::writer(const FlatSample& sample) {
  if (!writer_) {
    auto layout = slot_->fixed_layout();
    if (!layout) layout = fix_layout(sample);
    if (!layout) return nullptr;
    writer_.emplace(RowLayout(slot_->at(*layout)), *slot_, slot_->at(slot_->rows_begin()),
                    slot_->num_samples());
  }
  return &*writer_;
}

// The first sample of a batch to be finished says what its rows look like. Returns the layout that
// is fixed then, by this worker or another; nothing if none is.
std::optional<uint64_t> RowStore::fix_layout(const FlatSample& sample) {
  auto& state = slot_->header().layout_state;
  LayoutState seen = state.load(std::memory_order_acquire);
  if (seen == LayoutState::kTentative && kept_layout_suits(*slot_, sample)) {
    state.compare_exchange_strong(seen, LayoutState::kFixedKept, std::memory_order_acq_rel);
    return slot_->fixed_layout();
  }
  if ((seen == LayoutState::kTentative || seen == LayoutState::kNone) &&
      state.compare_exchange_strong(seen, LayoutState::kWriting, std::memory_order_acq_rel)) {
    LayoutState written = LayoutState::kNone;  // should the encoding throw
    try {
      written = write_layout(sample);
    } catch (...) {
      state.store(written, std::memory_order_release);
      throw;
    }
    state.store(written, std::memory_order_release);
  }
  return slot_->fixed_layout();
}

LayoutState RowStore::write_layout(const FlatSample& sample) {
  const std::vector<std::byte> bytes = RowLayout::encode(sample, fetcher_.leaf_paths());
  if (bytes.size() > Slot::kLayoutBytes || !fits(*slot_, RowLayout(bytes.data()))) {
    return LayoutState::kUnfit;
  }
  std::memcpy(slot_->at(slot_->new_layout()), bytes.data(), bytes.size());
  return LayoutState::kFixedNew;
}

RowState RowStore::spill(uint32_t row, const FlatSample& sample) {
  const std::vector<std::byte> bytes = RowLayout::encode(sample, fetcher_.leaf_paths());
  if (const auto record = store_record(*slot_, bytes, sample)) {
    slot_->records()[row] = *record;
    return RowState::kSpilled;
  }
  const RowLayout layout(bytes.data());
  const auto all = layout.rows_bytes(slot_->num_samples());
  const uint64_t open = slot_->header().open_used;
  throw std::length_error("stoker: " +
                          describe_too_large(*slot_, all ? std::max(*all, open) : all));
}

}  // namespace stoker::detail
