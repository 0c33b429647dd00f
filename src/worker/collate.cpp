// SPDX-License-Identifier: BSD-3-Clause
#include "worker/collate.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "memory/failure.h"
#include "memory/record.h"
#include "memory/row_layout.h"

namespace stoker::detail {

namespace {

// A sample lies in its row only where a layout was fixed.
uint64_t fixed_layout(Slot slot) {
  const auto layout = slot.fixed_layout();
  if (!layout) throw_damaged("the header");
  return *layout;
}

uint64_t layout_of(Slot slot, uint64_t row) {
  return slot.state(row) == RowState::kSpilled ? slot.records()[row] : fixed_layout(slot);
}

std::string field(const RowLayout& layout, const RowLayout::Leaf& leaf) {
  const std::string path(layout.path(leaf));
  return path.empty() ? "samples" : "field " + path + " of samples";
}

std::string name_mismatch(const RowLayout& a, const RowLayout& b, size_t index_a, size_t index_b) {
  const std::string pair = " " + std::to_string(index_a) + " and " + std::to_string(index_b);
  const auto leaves_a = a.leaves();
  const auto leaves_b = b.leaves();
  for (size_t i = 0; i < std::min(leaves_a.size(), leaves_b.size()); ++i) {
    const std::string da = describe(a, leaves_a[i]);
    const std::string db = describe(b, leaves_b[i]);
    if (a.path(leaves_a[i]) != b.path(leaves_b[i])) {
      return "cannot collate samples" + pair + ": where the first has field " +
             std::string(a.path(leaves_a[i])) + ", the second has " +
             std::string(b.path(leaves_b[i])) + " (lengths and keys must agree)";
    }
    if (da != db) {
      return "cannot collate " + field(a, leaves_a[i]) + pair + ": " + da + " and " + db +
             " (all samples of a batch must have the same shape and dtype)";
    }
  }
  const bool more_in_a = leaves_a.size() > leaves_b.size();
  if (leaves_a.size() == leaves_b.size()) {
    return "cannot collate samples" + pair + ": their lengths or keys differ";
  }
  const RowLayout& longer = more_in_a ? a : b;
  const RowLayout::Leaf& extra = longer.leaves()[std::min(leaves_a.size(), leaves_b.size())];
  return "cannot collate samples" + pair + ": only the " + (more_in_a ? "first" : "second") +
         " has field " + std::string(longer.path(extra)) + " (lengths and keys must agree)";
}

SlotStatus fail(Slot slot, std::optional<int64_t> worker_id, const std::string& text) {
  slot.header().failure = store_failure(slot, {worker_id, getpid(), std::nullopt, "", text});
  return SlotStatus::kFailed;
}

// Where the whole batch goes: the rows of the fixed layout, or else a block of the open end.
std::optional<uint64_t> place_rows(Slot slot, const RowLayout& layout) {
  const auto bytes = layout.rows_bytes(slot.num_samples());
  if (!bytes) return std::nullopt;
  if (slot.fixed_layout() && *bytes <= slot.rows_capacity()) return slot.rows_begin();
  return slot.allocate(*bytes);
}

// What the samples' layouts differ in, if they do.
std::optional<std::string> find_mismatch(Slot slot, uint64_t first_at, const RowLayout& first) {
  uint64_t same = first_at;  // found to be
  for (uint64_t row = 1; row < slot.header().fetched; ++row) {
    const uint64_t at = layout_of(slot, row);
    if (at == same) continue;
    const auto bytes = RowLayout::copy(slot, at);
    const RowLayout other(bytes.data());
    if (!(other == first)) {
      return name_mismatch(first, other, slot.index(0), slot.index(row));
    }
    same = at;
  }
  return std::nullopt;
}

void require_record(Slot slot, uint64_t row, const RowLayout& layout) {
  const auto bytes = layout.rows_bytes(1);
  if (!bytes || !slot.is_given_out(slot.records()[row] + layout.encoded_bytes(), *bytes)) {
    throw_damaged("a sample");
  }
}

SlotStatus gather_spilled(Slot slot, std::optional<int64_t> worker_id) {
  const uint64_t first_at = layout_of(slot, 0);
  const auto bytes = RowLayout::copy(slot, first_at);
  const RowLayout first(bytes.data());
  if (const auto mismatch = find_mismatch(slot, first_at, first)) {
    return fail(slot, worker_id, "stoker: " + *mismatch);
  }
  const uint64_t n = slot.num_samples();
  const uint64_t fetched = slot.header().fetched;
  // Before more of the open end is given out.
  for (uint64_t row = 0; row < fetched; ++row) {
    if (slot.state(row) == RowState::kSpilled) require_record(slot, row, first);
  }
  const auto rows = place_rows(slot, first);
  if (!rows)
    return fail(slot, worker_id, "stoker: " + describe_too_large(slot, first.rows_bytes(n)));
  for (uint64_t row = 0; row < fetched; ++row) {
    if (slot.state(row) != RowState::kSpilled) continue;
    copy_row(first, slot.at(slot.records()[row] + first.encoded_bytes()), slot.at(*rows), n, row);
  }
  slot.header().result_layout = first_at;
  slot.header().result_rows = *rows;
  return SlotStatus::kReady;
}

BatchLeaves read_sample(Slot slot, uint64_t row) {
  const uint64_t at = layout_of(slot, row);
  const auto bytes = RowLayout::copy(slot, at);
  const RowLayout layout(bytes.data());
  const bool alone = slot.state(row) == RowState::kSpilled;
  const uint64_t rows = alone ? at + layout.encoded_bytes() : slot.rows_begin();
  const uint64_t n = alone ? 1 : slot.num_samples();
  const auto rows_bytes = layout.rows_bytes(n);
  const bool good = rows_bytes && (alone ? slot.is_given_out(rows, *rows_bytes)
                                         : slot.may_be_rows(rows, *rows_bytes));
  if (!good) throw_damaged("a sample");
  return read_row(slot, layout, slot.at(rows), n, alone ? 0 : row);
}

SlotStatus collate_with_users(Slot slot, Fetcher& fetcher, std::optional<int64_t> worker_id) {
  std::vector<BatchLeaves> samples;
  for (uint64_t row = 0; row < slot.header().fetched; ++row) {
    samples.push_back(read_sample(slot, row));
  }
  const FlatSample* batch = nullptr;
  try {
    batch = &fetcher.collate(samples);
  } catch (...) {
    throw CollateFunctionThrew{std::current_exception()};
  }
  const std::vector<std::byte> bytes = RowLayout::encode(*batch, fetcher.leaf_paths());
  const auto record = store_record(slot, bytes, *batch);
  if (!record) {
    return fail(slot, worker_id,
                "stoker: " + describe_too_large(slot, RowLayout(bytes.data()).rows_bytes(1)));
  }
  slot.header().result_layout = *record;
  slot.header().result_rows = *record + bytes.size();
  return SlotStatus::kReady;
}

SlotStatus put_together(Slot slot, Fetcher& fetcher, std::optional<int64_t> worker_id) {
  SlotHeader& header = slot.header();
  // Nobody will look at it; some rows may never have been run.
  if (header.cancelled.load(std::memory_order_relaxed) != 0) return SlotStatus::kReady;
  bool spilled = false;
  bool bad = false;
  bool skipped = false;
  if (header.fetched > slot.num_samples()) throw_damaged("the header");
  // Of a stream, rows for which no sample came have no state; row 0 tells of a failure.
  const uint64_t rows = slot.is_stream() ? std::max(header.fetched, 1u) : slot.num_samples();
  for (uint64_t row = 0; row < rows; ++row) {
    switch (slot.state(row)) {
      case RowState::kFailed:
        header.failure = slot.records()[row];
        return SlotStatus::kFailed;
      case RowState::kBad:
        bad = true;
        break;
      case RowState::kSpilled:
        spilled = true;
        break;
      case RowState::kSkipped:  // there is a failed row, which is found as well, or no sample
        skipped = skipped || row < header.fetched;
        break;
      case RowState::kInRows:
        break;
      case RowState::kPending:  // none is left by now
      default:
        throw_damaged("a row's state");
    }
  }
  if (skipped) throw_damaged("a row's state");
  if (bad) return SlotStatus::kIncomplete;
  if (header.fetched == 0) return SlotStatus::kReady;  // the stream is at its end
  if (fetcher.form() == BatchForm::kCollated) return collate_with_users(slot, fetcher, worker_id);
  if (spilled) return gather_spilled(slot, worker_id);
  header.result_layout = fixed_layout(slot);
  header.result_rows = slot.rows_begin();
  return SlotStatus::kReady;
}

}  // namespace

SlotStatus collate(Slot slot, Fetcher& fetcher, std::optional<int64_t> worker_id) {
  try {
    return put_together(slot, fetcher, worker_id);
  } catch (const std::exception& error) {
    return fail(slot, worker_id, error.what());
  }
}

}  // namespace stoker::detail
