// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Writes samples to the rows of a batch: the collation, one sample at a time. What all rows have in
// common is looked up once, since a tiny sample takes less than a microsecond in all.
//
// Process safety: a worker only writes rows that it has claimed.

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <stoker/detail/flat_sample.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "memory/row_layout.h"
#include "memory/slot.h"

namespace stoker::detail {

class RowWriter {
 public:
  // For `n` rows of this layout, which is fixed, at `rows`.
  RowWriter(const RowLayout& layout, Slot slot, std::byte* rows, uint64_t n);

  // Whether the sample's row is one of these.
  bool matches(const FlatSample& sample);
  // Writes a sample that matches. False if the slot's open end is full.
  bool write(const FlatSample& sample, uint64_t row) const;
  // Asks the caches for the bytes of a sample that matches, and of its row, where the samples are
  // so small that waiting for those takes most of the time of a write, which cannot fail then.
  // False for other samples.
  bool prefetch(const FlatSample& sample, uint64_t row) const;
  // Whether a tensor of one sample lies where the other's does; both match.
  bool shares_memory(const FlatSample& a, const FlatSample& b) const;

  // Where the leaves of samples from this row on go, for who writes many at once; nothing if large
  // ones had better be written by `write`.
  std::optional<c10::SmallVector<std::byte*, 4>> columns_from(uint64_t row) const;

 private:
  // The rows of one leaf.
  struct Column {
    FlatSample::Kind kind;
    at::ScalarType dtype;
    uint64_t row_bytes;
    at::IntArrayRef sizes;
    std::byte* begin;
    bool streamed;
    // Those of the last tensor that was dense and on the CPU: another with the same keys is too.
    std::optional<c10::DispatchKeySet> plain_keys;
    bool resolved = false;  // such a tensor's bytes are its values: neither conjugated nor negated
  };

  static bool matches(const at::Tensor& tensor, Column& column);
  static void write(const at::Tensor& tensor, const Column& column, std::byte* row);

  RowLayout layout_;
  Slot slot_;
  c10::SmallVector<Column, 4> columns_;
  bool is_tiny_ = true;
};

}  // namespace stoker::detail
