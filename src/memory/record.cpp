// SPDX-License-Identifier: BSD-3-Clause
#include "memory/record.h"

#include <ATen/ops/from_blob.h>

#include <cstring>

#include "memory/row_writer.h"

namespace stoker::detail {

std::optional<uint64_t> store_record(Slot slot, const std::vector<std::byte>& bytes,
                                     const FlatSample& sample) {
  const RowLayout layout(bytes.data());
  const auto data = layout.rows_bytes(1);
  const auto record = data ? slot.allocate(bytes.size() + *data) : std::nullopt;
  if (!record) return std::nullopt;
  std::memcpy(slot.at(*record), bytes.data(), bytes.size());
  RowWriter writer(layout, slot, slot.at(*record + bytes.size()), 1);
  // It matches: asked only so that the writer learns what kind of tensors these are.
  if (!writer.matches(sample) || !writer.write(sample, 0)) return std::nullopt;
  return record;
}

BatchLeaves read_row(Slot slot, const RowLayout& layout, std::byte* rows, uint64_t n,
                     uint64_t row) {
  BatchLeaves sample;
  sample.structure = layout.structure();
  for (const RowLayout::Leaf& leaf : layout.leaves()) {
    std::byte* const at = rows + row * leaf.row_bytes;
    auto& out = sample.leaves.emplace_back();
    if (leaf.kind == FlatSample::Kind::kString) {
      StringRow entry;
      std::memcpy(&entry, at, sizeof entry);
      if (!slot.is_given_out(entry.offset, entry.bytes)) throw_damaged("a string");
      out.strings.emplace_back(reinterpret_cast<const char*>(slot.at(entry.offset)), entry.bytes);
    } else {
      out.tensor = at::from_blob(at, layout.sizes(leaf), at::TensorOptions(leaf.dtype));
    }
    rows += align64(leaf.row_bytes * n);
  }
  return sample;
}

}  // namespace stoker::detail
