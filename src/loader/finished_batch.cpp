// SPDX-License-Identifier: BSD-3-Clause
#include "loader/finished_batch.h"

#include <algorithm>
#include <cstring>

namespace stoker::detail {

namespace {

uint64_t open_end_used(Slot slot) {
  return std::min(slot.header().open_used.load(std::memory_order_relaxed), slot.bytes() / 2);
}

}  // namespace

FinishedBatch::FinishedBatch(Slot slot, uint64_t num_samples, bool single)
    : slot_(slot),
      num_rows_(single ? 1 : num_samples),
      copy_(RowLayout::copy(slot, slot.header().result_layout)),
      string_bytes_(open_end_used(slot)) {
  const uint64_t rows = slot.header().result_rows;
  const auto bytes = layout().rows_bytes(num_rows_);
  if (slot.num_samples() != num_samples || !bytes || !slot.may_be_rows(rows, *bytes)) {
    throw_damaged("the header");
  }
  rows_ = slot.at(rows);
  rows_bytes_ = *bytes;
  // Of a stream that came short, the last rows were not touched.
  const uint64_t came = std::min<uint64_t>(num_rows_, single ? 1 : slot.header().fetched);
  const auto leaves = layout().leaves();
  if (!leaves.empty()) rows_bytes_ -= leaves.back().row_bytes * (num_rows_ - came);
  touched_bytes_ = layout().rows_bytes(came).value();
}

uint64_t FinishedBatch::bytes() const { return touched_bytes_ + open_end_used(slot_); }

std::vector<std::string> FinishedBatch::strings(const std::byte* rows, uint64_t count) {
  std::vector<std::string> strings(count);
  for (std::string& text : strings) {
    StringRow entry;
    std::memcpy(&entry, rows, sizeof entry);
    rows += sizeof entry;
    if (!slot_.is_given_out(entry.offset, entry.bytes) || entry.bytes > string_bytes_) {
      throw_damaged("a string");
    }
    string_bytes_ -= entry.bytes;
    text.assign(reinterpret_cast<const char*>(slot_.at(entry.offset)), entry.bytes);
  }
  return strings;
}

}  // namespace stoker::detail
