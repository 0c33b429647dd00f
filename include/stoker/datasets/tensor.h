// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace stoker {

namespace detail {

// The rows of one tensor.
class TensorRows {
 public:
  TensorRows() = default;
  // Throws std::invalid_argument for a tensor that has none.
  explicit TensorRows(at::Tensor tensor, size_t position);

  const at::Tensor& tensor() const { return tensor_; }
  size_t size() const { return static_cast<size_t>(tensor_.size(0)); }
  // A view. Throws std::out_of_range.
  at::Tensor row(size_t index) const;
  // Whether the values of a row are a run of bytes.
  bool has_dense_rows() const { return dense_; }
  // Copies such rows to `column`, one behind another. Throws std::out_of_range.
  void gather(std::span<const size_t> indices, std::byte* column) const;

 private:
  at::Tensor tensor_;
  bool plain_ = false;  // strided, and of no special kind
  bool dense_ = false;
};

// Throws std::invalid_argument unless all have the same number of rows.
void check_same_rows(std::span<const TensorRows> tensors);

}  // namespace detail

/// Sample i is row i of each of `Count` tensors: `TensorDataset{images, labels}` yields
/// `std::array<Tensor, 2>` of shapes `[...]`, views that share the tensors' memory, and its batches
/// are `auto& [images, labels]` of shapes `[n, ...]`. Compare `torch.utils.data.TensorDataset`
/// (libtorch's is of a single tensor).
template <size_t Count>
class TensorDataset {
 public:
  using Sample = std::array<at::Tensor, Count>;

  /// CPU tensors with the same size in their first dimension. Throws `std::invalid_argument`
  /// otherwise.
  template <std::convertible_to<at::Tensor>... Tensors>
  requires(sizeof...(Tensors) == Count && Count > 0) explicit TensorDataset(Tensors... tensors) {
    size_t i = 0;
    ((tensors_[i] = detail::TensorRows(std::move(tensors), i), ++i), ...);
    detail::check_same_rows(tensors_);
  }

  /// Throws `std::out_of_range`.
  Sample get(size_t index) const {
    Sample sample;
    for (size_t i = 0; i < Count; ++i) sample[i] = tensors_[i].row(index);
    return sample;
  }
  std::vector<Sample> get_batch(std::span<const size_t> indices) const {
    std::vector<Sample> samples;
    samples.reserve(indices.size());
    for (const size_t index : indices) samples.push_back(get(index));
    return samples;
  }
  size_t size() const { return tensors_[0].size(); }

  /// For the loader: copies tensor i of all these samples to `columns[i]`. False if rows are
  /// strided. Throws `std::out_of_range`.
  bool gather(std::span<const size_t> indices, std::span<std::byte* const> columns) const {
    for (const auto& tensor : tensors_) {
      if (!tensor.has_dense_rows()) return false;
    }
    for (size_t i = 0; i < Count; ++i) tensors_[i].gather(indices, columns[i]);
    return true;
  }

  const at::Tensor& tensor(size_t i) const { return tensors_.at(i).tensor(); }

 private:
  std::array<detail::TensorRows, Count> tensors_;
};

template <std::convertible_to<at::Tensor>... Tensors>
TensorDataset(Tensors...) -> TensorDataset<sizeof...(Tensors)>;

}  // namespace stoker
