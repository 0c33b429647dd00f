// SPDX-License-Identifier: BSD-3-Clause
#include "samplers/permutation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <limits>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "memory/failure.h"
#include "supervisor/available_memory.h"

namespace stoker::detail {

namespace {

// Beyond this size, torch::randperm draws 64 bits for each index, in an order that knows the first
// one last.
constexpr int64_t kMostDrawnOneByOne = std::numeric_limits<uint32_t>::max() / 20 - 1;

// Of memory for an order: less is not worth a look at how much there is.
constexpr uint64_t kNoticeable = uint64_t{64} << 20;

[[noreturn]] void throw_too_large(int64_t size, uint64_t bytes) {
  throw std::runtime_error("stoker: the order of " + std::to_string(size) + " samples takes " +
                           megabytes(bytes) + " of memory, and " + megabytes(available_memory()) +
                           " is available; use KeyedRandomSampler, which needs none");
}

}  // namespace

uint64_t Permutation::draws(int64_t size) {
  const auto count = static_cast<uint64_t>(size);
  return size > kMostDrawnOneByOne ? 2 * count : std::max<uint64_t>(count, 1) - 1;
}

void Permutation::allocate() {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const auto count = static_cast<uint64_t>(size_);
  const uint64_t bytes = count > kMost / sizeof(int64_t) ? kMost : count * sizeof(int64_t);
  if (order_.size() == count) return;
  if (bytes >= kNoticeable && bytes > available_memory()) throw_too_large(size_, bytes);
  try {
    order_.resize(count);
  } catch (const std::bad_alloc&) {
    throw_too_large(size_, bytes);
  } catch (const std::length_error&) {
    throw_too_large(size_, bytes);
  }
}

void Permutation::begin(const at::mt19937& engine) {
  allocate();
  engine_ = engine;
  if (size_ <= kMostDrawnOneByOne) {
    std::iota(order_.begin(), order_.end(), 0);
    permuted_ = 0;
    return;
  }
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  auto* const impl = at::check_generator<at::CPUGeneratorImpl>(generator);
  impl->set_engine(engine);
  at::Tensor order = at::from_blob(order_.data(), {size_}, at::TensorOptions(at::kLong));
  at::randperm_out(order, size_, generator);
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
