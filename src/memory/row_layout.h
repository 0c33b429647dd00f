// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the rows of a batch look like: for each leaf of the sample its kind, dtype and sizes, and
// the structure that all samples share. A layout is a run of bytes, so that it can lie in a slot;
// RowLayout reads it there. The rows of a batch of n are one block of n rows per leaf, each block
// 64-byte aligned.
//
// A string leaf has a row too: the place of its bytes in the slot's open end.
//
// Process safety: a layout is written by one process and read by others after its publication
// (LayoutState::kFixed, or the status of the slot).

#include <ATen/core/Tensor.h>
#include <stoker/detail/flat_sample.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memory/slot.h"

namespace stoker::detail {

struct StringRow {
  uint64_t offset;  // from the slot
  uint64_t bytes;
};

class RowLayout {
 public:
  struct Leaf {
    FlatSample::Kind kind;
    at::ScalarType dtype;
    uint32_t ndim;
    uint64_t row_bytes;
    uint32_t sizes_at;  // from the layout
    uint32_t path_at;
    uint32_t path_bytes;
  };

  explicit RowLayout(const std::byte* bytes) : bytes_(bytes) {}

  // The bytes of the layout at this offset of the slot, for those who must not believe what lies
  // there. All that a copy says of itself holds: what it points at is in it, and the bytes of a row
  // are those of its dtype and sizes. Throws std::runtime_error for one that is damaged.
  static std::vector<std::byte> copy(Slot slot, uint64_t offset);
  // Whether a copy would succeed.
  static bool is_sound_at(Slot slot, uint64_t offset);

  // The layout that this sample asks for. Throws std::invalid_argument for a tensor that no batch
  // can hold (on a device, sparse, ..), naming its path.
  static std::vector<std::byte> encode(const FlatSample& sample,
                                       const std::vector<std::string>& paths);

  std::span<const Leaf> leaves() const;
  at::IntArrayRef sizes(const Leaf& leaf) const;
  std::string_view path(const Leaf& leaf) const;
  std::string_view structure() const;

  // The same leaves and structure; whatever their names.
  bool operator==(const RowLayout& other) const;

  // Bytes of the layout itself; a multiple of 64.
  uint64_t encoded_bytes() const { return header().total_bytes; }

  // Bytes of the rows of n samples; nothing if that many do not exist.
  std::optional<uint64_t> rows_bytes(uint64_t n) const;

 private:
  struct Header {
    uint32_t num_leaves;
    uint32_t structure_at;
    uint32_t structure_bytes;
    uint32_t total_bytes;
  };
  const Header& header() const { return *reinterpret_cast<const Header*>(bytes_); }
  static std::optional<uint64_t> bytes_at(Slot slot, uint64_t offset);
  bool is_sound(uint64_t bytes) const;
  bool is_sound(const Leaf& leaf) const;

  const std::byte* bytes_;
};

// Whether a batch can hold it: a dense tensor on the CPU, not quantized.
bool is_plain(const at::Tensor& tensor);

// Copies the only row of `from` to row `row` of n.
void copy_row(const RowLayout& layout, const std::byte* from, std::byte* rows, uint64_t n,
              uint64_t row);

// "float32 [3, 224, 224]", "string": for messages.
std::string describe(const RowLayout& layout, const RowLayout::Leaf& leaf);

}  // namespace stoker::detail
