// SPDX-License-Identifier: BSD-3-Clause
#include "permutation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace stoker::detail {

namespace {

// Beyond this size, torch::randperm draws 64 bits for each index, in an order that knows the first
// one last.
constexpr int64_t kMostDrawnOneByOne = std::numeric_limits<uint32_t>::max() / 20 - 1;

}  // namespace

uint64_t Permutation::draws(int64_t size) {
  const auto count = static_cast<uint64_t>(size);
  return size > kMostDrawnOneByOne ? 2 * count : std::max<uint64_t>(count, 1) - 1;
}

void Permutation::begin(const at::mt19937& engine) {
  engine_ = engine;
  order_.resize(static_cast<size_t>(size_));
  if (size_ <= kMostDrawnOneByOne) {
    std::iota(order_.begin(), order_.end(), 0);
    permuted_ = 0;
    return;
  }
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  auto* const impl = at::check_generator<at::CPUGeneratorImpl>(generator);
  impl->set_engine(engine);
  const at::Tensor order = at::randperm(size_, generator, at::TensorOptions(at::kLong));
  std::copy_n(order.const_data_ptr<int64_t>(), size_, order_.begin());
  engine_ = impl->engine();
  permuted_ = order_.size();
}

// Fisher and Yates's.
void Permutation::permute_more() {
  const size_t size = order_.size();
  const size_t end = std::min(size, permuted_ + std::clamp<size_t>(permuted_, 256, 16384));
  for (; permuted_ < end; ++permuted_) {
    if (permuted_ + 1 == size) continue;  // nothing is drawn for the last one
    std::swap(order_[permuted_], order_[permuted_ + engine_() % (size - permuted_)]);
  }
}

at::mt19937 Permutation::finish() {
  while (permuted_ < order_.size()) permute_more();
  return engine_;
}

}  // namespace stoker::detail
