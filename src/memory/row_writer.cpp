// SPDX-License-Identifier: BSD-3-Clause
#include "memory/row_writer.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <cstring>

#include "memory/stream_copy.h"

namespace stoker::detail {

using Kind = FlatSample::Kind;

namespace {

constexpr uint64_t kCacheLine = 64;
constexpr uint64_t kTinyBytes = 8 * kCacheLine;

// Rows of which a batch fills most of a cache shared by all cores.
bool is_large(uint64_t row_bytes, uint64_t n) {
  return row_bytes >= (128 << 10) && row_bytes * n >= (8 << 20);
}

bool write_string(std::string_view text, Slot slot, std::byte* row) {
  const auto place = slot.allocate(text.size());
  if (!place) return false;
  std::memcpy(slot.at(*place), text.data(), text.size());
  const StringRow entry{*place, text.size()};
  std::memcpy(row, &entry, sizeof entry);
  return true;
}

}  // namespace

RowWriter::RowWriter(const RowLayout& layout, Slot slot, std::byte* rows, uint64_t n)
    : layout_(layout), slot_(slot) {
  for (const RowLayout::Leaf& leaf : layout.leaves()) {
    columns_.push_back({leaf.kind, leaf.dtype, leaf.row_bytes, layout.sizes(leaf), rows,
                        is_large(leaf.row_bytes, n), std::nullopt});
    rows += align64(leaf.row_bytes * n);
    is_tiny_ = is_tiny_ && leaf.row_bytes <= kTinyBytes && leaf.kind != Kind::kString;
  }
}

bool RowWriter::matches(const FlatSample& sample) {
  const auto& leaves = sample.leaves();
  if (leaves.size() != columns_.size() || layout_.structure() != sample.structure()) return false;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].kind != columns_[i].kind) return false;
    if (leaves[i].kind == Kind::kNumber && leaves[i].dtype != columns_[i].dtype) return false;
    if (leaves[i].kind == Kind::kTensor && !matches(*leaves[i].tensor, columns_[i])) return false;
  }
  return true;
}

bool RowWriter::matches(const at::Tensor& tensor, Column& column) {
  if (tensor.key_set() != column.plain_keys) {
    if (!is_plain(tensor)) return false;
    column.plain_keys = tensor.key_set();
    column.resolved = !tensor.is_conj() && !tensor.is_neg();
  }
  return tensor.scalar_type() == column.dtype && tensor.sizes() == column.sizes;
}

bool RowWriter::write(const FlatSample& sample, uint64_t row) const {
  for (size_t i = 0; i < columns_.size(); ++i) {
    const FlatSample::Leaf& leaf = sample.leaves()[i];
    std::byte* at = columns_[i].begin + row * columns_[i].row_bytes;
    switch (leaf.kind) {
      case Kind::kTensor:
        write(*leaf.tensor, columns_[i], at);
        break;
      case Kind::kNumber:
        std::memcpy(at, leaf.number.data(), leaf.number_bytes);
        break;
      case Kind::kString:
        if (!write_string(leaf.text, slot_, at)) return false;
        break;
    }
  }
  return true;
}

std::optional<c10::SmallVector<std::byte*, 4>> RowWriter::columns_from(uint64_t row) const {
  c10::SmallVector<std::byte*, 4> columns;
  for (const Column& column : columns_) {
    if (column.streamed) return std::nullopt;
    columns.push_back(column.begin + row * column.row_bytes);
  }
  return columns;
}

bool RowWriter::shares_memory(const FlatSample& a, const FlatSample& b) const {
  if (a.leaves().size() != b.leaves().size()) return false;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const FlatSample::Leaf& mine = a.leaves()[i];
    const FlatSample::Leaf& other = b.leaves()[i];
    if (mine.kind != Kind::kTensor || other.kind != Kind::kTensor) continue;
    if (columns_[i].row_bytes == 0 || !other.tensor->has_storage()) continue;
    if (mine.tensor->const_data_ptr() == other.tensor->const_data_ptr()) return true;
  }
  return false;
}

bool RowWriter::prefetch(const FlatSample& sample, uint64_t row) const {
  if (!is_tiny_) return false;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const FlatSample::Leaf& leaf = sample.leaves()[i];
    if (leaf.kind != Kind::kTensor) continue;
    const Column& column = columns_[i];
    const auto* from = static_cast<const std::byte*>(leaf.tensor->const_data_ptr());
    const std::byte* to = column.begin + row * column.row_bytes;
    for (uint64_t offset = 0; offset < column.row_bytes; offset += kCacheLine) {
      __builtin_prefetch(from + offset, 0);
      __builtin_prefetch(to + offset, 1);
    }
  }
  return true;
}

void RowWriter::write(const at::Tensor& tensor, const Column& column, std::byte* row) {
  if (!column.resolved || !tensor.is_contiguous()) {
    const c10::NoGradGuard no_grad;
    at::from_blob(row, tensor.sizes(), at::TensorOptions(tensor.scalar_type())).copy_(tensor);
  } else if (column.streamed) {
    stream_copy(row, static_cast<const std::byte*>(tensor.const_data_ptr()), column.row_bytes);
  } else if (column.row_bytes > 0) {
    std::memcpy(row, tensor.const_data_ptr(), column.row_bytes);
  }
}

}  // namespace stoker::detail
