// SPDX-License-Identifier: BSD-3-Clause
#include "finished_batch.h"

#include <algorithm>
#include <cstring>

namespace stoker::detail {

namespace {

uint64_t open_end_used(Slot slot) {
  return std::min(slot.header().open_used.load(std::memory_order_relaxed), slot.bytes() / 2);
}

}  // namespace

FinishedBatch::FinishedBatch(Slot slot, uint64_t num_samples)
    : slot_(slot),
      num_samples_(num_samples),
      copy_(RowLayout::copy(slot, slot.header().result_layout)),
      string_bytes_(open_end_used(slot)) {
  const uint64_t rows = slot.header().result_rows;
  const auto bytes = layout().rows_bytes(num_samples);
  if (slot.num_samples() != num_samples || !bytes || !slot.may_be_rows(rows, *bytes)) {
    throw_damaged("the header");
  }
  rows_ = slot.at(rows);
  bytes_ = *bytes + string_bytes_;
}

std::vector<std::string> FinishedBatch::strings(const std::byte* rows) {
  std::vector<std::string> strings(num_samples_);
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
