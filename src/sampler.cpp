// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <stoker/sampler.h>

#include <stdexcept>
#include <string>
#include <utility>

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

at::Tensor draw_order(int64_t size, const at::Generator& generator) {
  return at::randperm(size, generator, at::TensorOptions(at::kLong));
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
void RandomSampler::permute() {
  const at::Generator generator =
      generator_ ? *generator_ : at::make_generator<at::CPUGeneratorImpl>(detail::draw_seed({}));
  const at::Tensor order = draw_order(size_, generator);
  order_.assign(order.const_data_ptr<int64_t>(), order.const_data_ptr<int64_t>() + size_);
  // Python's sampler draws a last, unused permutation when it runs out, and the next epoch's order
  // depends on it. Drawn here instead, so that an epoch left early changes nothing: how far the
  // loader had run ahead by then depends on the number of workers.
  if (generator_) draw_order(size_, *generator_);
  fresh_ = false;
}

std::optional<int64_t> RandomSampler::next() {
  if (fresh_) permute();
  if (next_ == size_) return std::nullopt;
  return order_[static_cast<size_t>(next_++)];
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
