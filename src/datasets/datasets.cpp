// SPDX-License-Identifier: BSD-3-Clause
// The parts of the datasets that do not depend on the types of their samples.
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/select.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>
#include <stoker/datasets/concat.h>
#include <stoker/datasets/stack.h>
#include <stoker/datasets/subset.h>
#include <stoker/datasets/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>

namespace stoker {

namespace detail {

namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("stoker: " + what);
}

}  // namespace

void refuse_index(const char* whole, size_t index, size_t size) {
  throw std::out_of_range("stoker: a " + std::string(whole) + " of " + std::to_string(size) +
                          " samples was asked for sample " + std::to_string(index));
}

TensorRows::TensorRows(at::Tensor tensor, size_t position) : tensor_(std::move(tensor)) {
  const std::string which = "tensor " + std::to_string(position) + " of the TensorDataset is ";
  if (!tensor_.defined()) refuse(which + "undefined; assign it first");
  if (tensor_.dim() == 0) refuse(which + "a scalar; samples are rows of its first dimension");
  if (!tensor_.is_cpu()) {
    refuse(which + "on " + tensor_.device().str() + "; move it to the CPU, and batches back");
  }
  plain_ = tensor_.layout() == at::kStrided && !tensor_.is_nested() && !tensor_.is_quantized() &&
           !tensor_.requires_grad() && !tensor_.unsafeGetTensorImpl()->is_python_dispatch();
  dense_ = plain_ && !tensor_.is_conj() && !tensor_.is_neg() && size() > 0 &&
           at::select(tensor_, 0, 0).is_contiguous();
}

// tensor[index]. By hand, since that takes several times as long, more than to copy a small row.
at::Tensor TensorRows::row(size_t index) const {
  if (index >= size()) refuse_index("TensorDataset", index, size());
  if (!plain_) return at::select(tensor_, 0, static_cast<int64_t>(index));
  const c10::TensorImpl& whole = *tensor_.unsafeGetTensorImpl();
  at::Tensor row = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(whole.storage()), whole.key_set(), whole.dtype());
  row.unsafeGetTensorImpl()->set_sizes_and_strides(
      whole.sizes().slice(1), whole.strides().slice(1),
      whole.storage_offset() + static_cast<int64_t>(index) * whole.stride(0));
  return row;
}

void TensorRows::gather(std::span<const size_t> indices, std::byte* column) const {
  const auto item = static_cast<int64_t>(tensor_.itemsize());
  const auto row_bytes = static_cast<size_t>(tensor_.numel() / tensor_.size(0) * item);
  const int64_t stride = tensor_.stride(0) * item;
  const auto* rows = static_cast<const std::byte*>(tensor_.const_data_ptr());
  const size_t n = size();
  for (const size_t index : indices) {
    if (index >= n) refuse_index("TensorDataset", index, n);
    std::memcpy(column, rows + static_cast<int64_t>(index) * stride, row_bytes);
    column += row_bytes;
  }
}

void check_same_rows(std::span<const TensorRows> tensors) {
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].size() == tensors[0].size()) continue;
    refuse("tensor " + std::to_string(i) + " of the TensorDataset has " +
           std::to_string(tensors[i].size()) + " rows, and tensor 0 has " +
           std::to_string(tensors[0].size()) + "; all must have the same number");
  }
}

size_t same_size(std::span<const size_t> sizes) {
  if (sizes.empty()) refuse("a StackDataset needs one dataset at least");
  for (size_t i = 1; i < sizes.size(); ++i) {
    if (sizes[i] == sizes[0]) continue;
    refuse("dataset " + std::to_string(i) + " of the StackDataset has " + std::to_string(sizes[i]) +
           " samples, and dataset 0 has " + std::to_string(sizes[0]) +
           "; all must have the same number");
  }
  return sizes[0];
}

Offsets::Place Offsets::find(size_t index) const {
  const auto end = std::ranges::upper_bound(ends_, index);
  if (end == ends_.end()) refuse_index("ConcatDataset", index, total());
  return {static_cast<size_t>(end - ends_.begin()),
          end == ends_.begin() ? index : index - *std::prev(end)};
}

void refuse_empty_concat() { refuse("a ConcatDataset needs one dataset at least"); }

void check_subset(const void* dataset, std::span<const int64_t> indices,
                  std::optional<size_t> size) {
  if (dataset == nullptr) refuse("a Subset needs a dataset");
  for (const int64_t index : indices) {
    if (index >= 0 && (!size || static_cast<size_t>(index) < *size)) continue;
    refuse(
        "a Subset was given index " + std::to_string(index) +
        (size ? " for a dataset of " + std::to_string(*size) + " samples" : ", which is negative"));
  }
}

void refuse_null_split() { refuse("random_split needs a dataset"); }

namespace {

void check_counts(const std::vector<int64_t>& counts, size_t size) {
  int64_t left = static_cast<int64_t>(size);
  std::string all;
  for (const int64_t count : counts) {
    if (count < 0) refuse("random_split was given the length " + std::to_string(count));
    left = count > left ? -1 : left - count;
    all += (all.empty() ? "" : " + ") + std::to_string(count);
    if (left < 0) break;
  }
  if (left != 0) {
    refuse("the lengths of a random_split (" + all +
           (left < 0 ? " ..) exceed " : ") do not reach ") + std::to_string(size) +
           ", the size of the dataset");
  }
}

void check_fractions(const std::vector<double>& fractions) {
  for (const double fraction : fractions) {
    if (fraction >= 0 && fraction <= 1) continue;
    refuse("random_split was given the fraction " + std::to_string(fraction) +
           "; it must be 0 to 1");
  }
  const double sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  if (std::abs(sum - 1) > 1e-9) {
    refuse("the fractions of a random_split add up to " + std::to_string(sum) + " instead of 1");
  }
}

std::vector<int64_t> counts_of(const std::vector<double>& fractions, size_t size) {
  check_fractions(fractions);
  const auto total = static_cast<int64_t>(size);
  std::vector<int64_t> counts;
  int64_t left = total;
  for (const double fraction : fractions) {
    const auto count = static_cast<int64_t>(std::floor(static_cast<double>(size) * fraction));
    counts.push_back(std::min(count, left));  // fractions may add up to a trifle more than 1
    left -= counts.back();
  }
  for (size_t i = 0; left > 0; --left, i = (i + 1) % counts.size()) ++counts[i];
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) TORCH_WARN("stoker: part ", i, " of a random_split is empty");
  }
  return counts;
}

}  // namespace

}  // namespace detail

std::vector<std::vector<int64_t>> SplitLengths::split(
    size_t size, const std::optional<at::Generator>& generator) const {
  const auto* const fractions = std::get_if<Fractions>(&lengths_);
  const Counts counts =
      fractions ? detail::counts_of(*fractions, size) : std::get<Counts>(lengths_);
  detail::check_counts(counts, size);
  const at::Tensor order =
      at::randperm(static_cast<int64_t>(size), generator, at::TensorOptions(at::kLong));
  const auto* next = order.const_data_ptr<int64_t>();
  std::vector<std::vector<int64_t>> parts;
  for (const int64_t count : counts) {
    parts.emplace_back(next, next + count);
    next += count;
  }
  return parts;
}

}  // namespace stoker
