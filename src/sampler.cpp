// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <stoker/sampler.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "generator_state.h"
#include "seed.h"

namespace stoker {

namespace {

int64_t checked_size(int64_t size) {
  if (size < 0) {
    throw std::invalid_argument("stoker: a sampler's size is " + std::to_string(size) +
                                "; it must be 0 or more");
  }
  return size;
}

// Beyond this size, torch::randperm draws 64 bits for each index.
constexpr int64_t kMostDrawnOneByOne = std::numeric_limits<uint32_t>::max() / 20 - 1;

std::vector<int64_t> draw_order(int64_t size, const at::Generator& generator) {
  const at::Tensor order = at::randperm(size, generator, at::TensorOptions(at::kLong));
  const auto* indices = order.const_data_ptr<int64_t>();
  return {indices, indices + size};
}

}  // namespace

SequentialSampler::SequentialSampler(int64_t size) : size_(checked_size(size)) {}

void SequentialSampler::reset() { next_ = 0; }

std::optional<int64_t> SequentialSampler::next() {
  if (next_ == size_) return std::nullopt;
  return next_++;
}

RandomSampler::RandomSampler(int64_t size, std::optional<at::Generator> generator)
    : size_(checked_size(size)), generator_(std::move(generator)) {}

void RandomSampler::reset() {
  next_ = 0;
  fresh_ = true;
}

// Not in reset: Python draws at the first key, after whatever the program drew since.
void RandomSampler::begin() {
  fresh_ = false;
  const auto size = static_cast<size_t>(size_);
  permuted_ = size;
  if (generator_) {
    order_ = draw_order(size_, *generator_);
    // Python's sampler draws a last, unused permutation when it runs out, and the next epoch's
    // order depends on it. Drawn here instead, so that an epoch left early changes nothing: how far
    // the loader had run ahead by then depends on the number of workers.
    draw_order(size_, *generator_);
    return;
  }
  const uint64_t seed = detail::draw_seed({});
  if (size_ > kMostDrawnOneByOne) {
    order_ = draw_order(size_, at::make_generator<at::CPUGeneratorImpl>(seed));
    return;
  }
  order_.resize(size);
  std::iota(order_.begin(), order_.end(), 0);
  engine_ = at::mt19937(seed);
  permuted_ = 0;
}

// Goes on with the permutation that torch::randperm would draw (Fisher and Yates's), in stretches:
// the first batch need not wait for millions of indices to be shuffled.
void RandomSampler::permute_more() {
  const size_t size = order_.size();
  const size_t end = std::min(size, permuted_ + std::clamp<size_t>(permuted_, 256, 16384));
  for (; permuted_ < end; ++permuted_) {
    if (permuted_ + 1 == size) continue;  // nothing is drawn for the last one
    std::swap(order_[permuted_], order_[permuted_ + (*engine_)() % (size - permuted_)]);
  }
}

std::optional<int64_t> RandomSampler::next() {
  if (fresh_) begin();
  if (next_ == order_.size()) return std::nullopt;
  while (next_ >= permuted_) permute_more();
  return order_[next_++];
}

void RandomSampler::skip(int64_t n) {
  if (fresh_) begin();
  next_ += std::min(static_cast<size_t>(n), order_.size() - next_);
}

StateDict RandomSampler::state_dict() const {
  return detail::GeneratorState::read(generator_).state_dict();
}

void RandomSampler::load_state_dict(const StateDict& state) {
  detail::GeneratorState::from(state).write(generator_);
}

BatchSampler::BatchSampler(std::shared_ptr<Sampler<int64_t>> sampler, int64_t batch_size,
                           bool drop_last)
    : sampler_(std::move(sampler)), batch_size_(batch_size), drop_last_(drop_last) {
  if (sampler_ == nullptr) throw std::invalid_argument("stoker: BatchSampler needs a sampler");
  if (batch_size_ < 1) {
    throw std::invalid_argument("stoker: batch_size is " + std::to_string(batch_size_) +
                                "; it must be 1 or more");
  }
}

void BatchSampler::reset() { sampler_->reset(); }

std::optional<std::vector<int64_t>> BatchSampler::next() {
  std::vector<int64_t> batch;
  batch.reserve(static_cast<size_t>(std::min<int64_t>(batch_size_, 4096)));
  while (static_cast<int64_t>(batch.size()) < batch_size_) {
    const auto index = sampler_->next();
    if (!index) break;
    batch.push_back(*index);
  }
  const bool is_short = static_cast<int64_t>(batch.size()) < batch_size_;
  if (batch.empty() || (is_short && drop_last_)) return std::nullopt;
  return batch;
}

std::optional<int64_t> BatchSampler::size() const {
  const auto size = sampler_->size();
  if (!size) return std::nullopt;
  return *size / batch_size_ + (!drop_last_ && *size % batch_size_ != 0 ? 1 : 0);
}

}  // namespace stoker
