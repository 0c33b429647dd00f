// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <stoker/collate.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace stoker::detail {

namespace {

using Kind = FlatSample::Kind;
using Column = std::vector<const FlatSample::Leaf*>;

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("stoker: cannot pad the samples of a batch: " + what);
}

std::string describe(const at::Tensor& tensor) {
  return std::string(c10::toString(tensor.scalar_type())) + " of " + std::to_string(tensor.dim()) +
         " dimensions";
}

// The largest size in each dimension.
std::vector<int64_t> largest(const Column& column) {
  const at::Tensor& first = *column.front()->tensor;
  std::vector<int64_t> sizes = first.sizes().vec();
  for (const auto* const leaf : column) {
    const at::Tensor& tensor = *leaf->tensor;
    if (tensor.dim() != first.dim() || tensor.scalar_type() != first.scalar_type()) {
      refuse("a tensor is " + describe(first) + " in one of them and " + describe(tensor) +
             " in another");
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      sizes[i] = std::max(sizes[i], tensor.size(static_cast<int64_t>(i)));
    }
  }
  return sizes;
}

at::Tensor pad(const Column& column, double padding_value) {
  std::vector<int64_t> sizes = largest(column);
  sizes.insert(sizes.begin(), static_cast<int64_t>(column.size()));
  at::Tensor batch = at::full(sizes, padding_value, column.front()->tensor->options());
  for (size_t i = 0; i < column.size(); ++i) {
    at::Tensor row = batch[static_cast<int64_t>(i)];
    const at::Tensor& tensor = *column[i]->tensor;
    for (int64_t d = 0; d < tensor.dim(); ++d) row = row.narrow(d, 0, tensor.size(d));
    row.copy_(tensor);
  }
  return batch;
}

at::Tensor sizes_of(const Column& column) {
  const auto n = static_cast<int64_t>(column.size());
  const int64_t dims = column.front()->tensor->dim();
  at::Tensor sizes = at::empty({n, dims}, at::kLong);
  auto* out = sizes.mutable_data_ptr<int64_t>();
  for (const auto* const leaf : column) {
    out = std::copy_n(leaf->tensor->sizes().begin(), dims, out);
  }
  return sizes;
}

at::Tensor stack_numbers(const Column& column) {
  at::Tensor batch = at::empty({static_cast<int64_t>(column.size())}, column.front()->dtype);
  auto* out = static_cast<std::byte*>(batch.mutable_data_ptr());
  for (const auto* const leaf : column) {
    out = std::copy_n(leaf->number.begin(), leaf->number_bytes, out);
  }
  return batch;
}

Column column_of(std::span<const FlatSample> samples, size_t leaf) {
  Column column;
  for (const FlatSample& sample : samples) column.push_back(&sample.leaves()[leaf]);
  return column;
}

void require_same_structure(std::span<const FlatSample> samples) {
  const FlatSample& first = samples.front();
  for (const FlatSample& sample : samples) {
    if (sample.structure() != first.structure() ||
        sample.leaves().size() != first.leaves().size()) {
      refuse("their lengths or keys differ");
    }
  }
}

}  // namespace

BatchLeaves pad_samples(std::span<const FlatSample> samples, double padding_value) {
  require_same_structure(samples);
  BatchLeaves batch;
  std::vector<BatchLeaves::Leaf> sizes;
  batch.structure = samples.front().structure();
  for (size_t i = 0; i < samples.front().leaves().size(); ++i) {
    const Column column = column_of(samples, i);
    auto& out = batch.leaves.emplace_back();
    switch (column.front()->kind) {
      case Kind::kTensor:
        out.tensor = pad(column, padding_value);
        sizes.push_back({sizes_of(column), {}});
        break;
      case Kind::kNumber:
        out.tensor = stack_numbers(column);
        break;
      case Kind::kString:
        for (const auto* const leaf : column) out.strings.emplace_back(leaf->text);
        break;
    }
  }
  batch.leaves.insert(batch.leaves.end(), sizes.begin(), sizes.end());
  return batch;
}

}  // namespace stoker::detail
