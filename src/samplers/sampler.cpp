// SPDX-License-Identifier: BSD-3-Clause
#include <stoker/sampler.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "memory/seed.h"
#include "samplers/checked_size.h"
#include "samplers/engine_draws.h"
#include "samplers/generator_state.h"
#include "samplers/permutation.h"

namespace stoker {

using detail::checked_size;

SequentialSampler::SequentialSampler(int64_t size) : size_(checked_size(size)) {}

void SequentialSampler::reset() { next_ = 0; }

std::optional<int64_t> SequentialSampler::next() {
  if (next_ == size_) return std::nullopt;
  return next_++;
}

// What is left of the epoch, and where its indices come from.
struct RandomSampler::Epoch {
  explicit Epoch(int64_t size) : permutation(size) {}

  detail::Permutation permutation;
  int64_t position = 0;                      // in the permutation
  detail::EngineDraws draws{at::mt19937()};  // with replacement
  int64_t left = 0;
  bool fresh = true;  // nothing has been drawn for it
};

RandomSampler::RandomSampler(int64_t size, std::optional<at::Generator> generator)
    : RandomSampler(size, false, std::nullopt, std::move(generator)) {}

RandomSampler::RandomSampler(int64_t size, bool replacement, std::optional<int64_t> num_samples,
                             std::optional<at::Generator> generator)
    : size_(checked_size(size)),
      replacement_(replacement),
      num_samples_(num_samples ? detail::checked_num_samples(*num_samples) : size),
      generator_(std::move(generator)),
      epoch_(std::make_unique<Epoch>(size)) {
  epoch_->left = num_samples_;
  if (size_ == 0 && num_samples_ > 0) {
    throw std::invalid_argument("stoker: num_samples is " + std::to_string(num_samples_) +
                                ", and there are no samples to draw them from");
  }
}

RandomSampler::~RandomSampler() = default;

void RandomSampler::reset() {
  epoch_->fresh = true;
  epoch_->left = num_samples_;
}

// Not in reset: Python draws at the first key, after whatever the program drew since. All that the
// epoch takes from a given generator is taken here, so that one left early changes nothing: how far
// the loader had run ahead by then depends on the number of workers. Without replacement that
// includes a last, cut-off permutation, which Python draws also where nothing of it is used.
void RandomSampler::begin() {
  const auto num_samples = static_cast<uint64_t>(num_samples_);
  // A single permutation takes longer to make than its generator to be moved on, so it keeps
  // Python's order at any size.
  const bool is_single = !replacement_ && num_samples_ <= size_;
  const auto engine = [&](uint64_t count, uint64_t draws) {
    if (!generator_) return at::mt19937(detail::draw_seed({}));
    return is_single ? detail::take_draws(generator_, count * draws)
                     : detail::take_epoch(generator_, count, draws);
  };
  if (replacement_ && size_ > 0) {
    epoch_->draws =
        detail::EngineDraws(engine(num_samples, detail::EngineDraws::draws_of_index(size_)));
  } else {
    epoch_->permutation.allocate();
    const uint64_t permutations = size_ == 0 ? 0 : num_samples / static_cast<uint64_t>(size_) + 1;
    epoch_->permutation.begin(engine(permutations, detail::Permutation::draws(size_)));
    epoch_->position = 0;
  }
  epoch_->fresh = false;
}

std::optional<int64_t> RandomSampler::next() {
  if (epoch_->fresh) begin();
  if (epoch_->left == 0) return std::nullopt;
  --epoch_->left;
  if (replacement_) return epoch_->draws.index(size_);
  if (epoch_->position == size_) begin_next_permutation();
  return epoch_->permutation.at(static_cast<size_t>(epoch_->position++));
}

void RandomSampler::skip(int64_t n) {
  if (epoch_->fresh) begin();
  n = std::min(n, epoch_->left);
  epoch_->left -= n;
  if (replacement_) {
    for (; n > 0; --n) epoch_->draws.index(size_);
    return;
  }
  for (; n > size_ - epoch_->position; begin_next_permutation()) n -= size_ - epoch_->position;
  epoch_->position += n;
}

void RandomSampler::begin_next_permutation() {
  epoch_->permutation.begin(epoch_->permutation.finish());
  epoch_->position = 0;
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

void BatchSampler::skip(int64_t n) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  sampler_->skip(n > kMost / batch_size_ ? kMost : n * batch_size_);
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
