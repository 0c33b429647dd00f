// SPDX-License-Identifier: BSD-3-Clause
#include "collate.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "failure.h"
#include "record.h"
#include "row_layout.h"

namespace stoker::detail {

namespace {

const std::byte* layout_bytes(Slot slot, uint64_t row) {
  // A sample lies in its row only where a layout was fixed.
  return slot.at(slot.state(row) == RowState::kSpilled ? slot.records()[row]
                                                       : slot.fixed_layout().value());
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
  slot.header().failure =
      store_failure(slot, {worker_id, getpid(), std::nullopt, "", "stoker: " + text});
  return SlotStatus::kFailed;
}

// Where the whole batch goes: the rows of the fixed layout, or else a block of the open end.
std::optional<uint64_t> place_rows(Slot slot, const RowLayout& layout) {
  if (slot.fixed_layout()) return slot.rows_begin();
  const auto bytes = layout.rows_bytes(slot.num_samples());
  return bytes ? slot.allocate(*bytes) : std::nullopt;
}

SlotStatus gather_spilled(Slot slot, std::optional<int64_t> worker_id) {
  const uint64_t n = slot.num_samples();
  const RowLayout first(layout_bytes(slot, 0));
  for (uint64_t row = 1; row < slot.header().fetched; ++row) {
    const RowLayout other(layout_bytes(slot, row));
    if (!(other == first)) {
      return fail(slot, worker_id,
                  name_mismatch(first, other, slot.indices()[0], slot.indices()[row]));
    }
  }
  const auto rows = place_rows(slot, first);
  if (!rows) {
    return fail(slot, worker_id, describe_too_large(slot, first.rows_bytes(n)));
  }
  for (uint64_t row = 0; row < slot.header().fetched; ++row) {
    if (slot.state(row) != RowState::kSpilled) continue;
    const uint64_t record = slot.records()[row];
    copy_row(first, slot.at(record + first.encoded_bytes()), slot.at(*rows), n, row);
  }
  slot.header().result_layout = static_cast<uint64_t>(layout_bytes(slot, 0) - slot.at(0));
  slot.header().result_rows = *rows;
  return SlotStatus::kReady;
}

std::vector<BatchLeaves> read_samples(Slot slot) {
  std::vector<BatchLeaves> samples;
  for (uint64_t row = 0; row < slot.header().fetched; ++row) {
    const RowLayout layout(layout_bytes(slot, row));
    const bool alone = slot.state(row) == RowState::kSpilled;
    samples.push_back(
        alone ? read_row(slot, layout, slot.at(slot.records()[row] + layout.encoded_bytes()), 1, 0)
              : read_row(slot, layout, slot.at(slot.rows_begin()), slot.num_samples(), row));
  }
  return samples;
}

SlotStatus collate_with_users(Slot slot, Fetcher& fetcher, std::optional<int64_t> worker_id) {
  std::vector<BatchLeaves> samples = read_samples(slot);
  const FlatSample& batch = fetcher.collate(samples);
  const std::vector<std::byte> bytes = RowLayout::encode(batch, fetcher.leaf_paths());
  const auto record = store_record(slot, bytes, batch);
  if (!record) {
    return fail(slot, worker_id, describe_too_large(slot, RowLayout(bytes.data()).rows_bytes(1)));
  }
  slot.header().result_layout = *record;
  slot.header().result_rows = *record + bytes.size();
  return SlotStatus::kReady;
}

}  // namespace

SlotStatus collate(Slot slot, Fetcher& fetcher, std::optional<int64_t> worker_id) {
  SlotHeader& header = slot.header();
  // Nobody will look at it; some rows may never have been run.
  if (header.cancelled.load(std::memory_order_relaxed) != 0) return SlotStatus::kReady;
  bool spilled = false;
  bool bad = false;
  for (uint64_t row = 0; row < slot.num_samples(); ++row) {
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
      case RowState::kInRows:
      case RowState::kSkipped:  // there is a failed row, which is found as well, or no sample
      case RowState::kPending:  // none is left by now
        break;
    }
  }
  if (bad) return SlotStatus::kIncomplete;
  if (header.fetched == 0) return SlotStatus::kReady;  // the stream is at its end
  if (fetcher.form() == BatchForm::kCollated) return collate_with_users(slot, fetcher, worker_id);
  if (spilled) return gather_spilled(slot, worker_id);
  header.result_layout = slot.fixed_layout().value();
  header.result_rows = slot.rows_begin();
  return SlotStatus::kReady;
}

}  // namespace stoker::detail
