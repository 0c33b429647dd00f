// SPDX-License-Identifier: BSD-3-Clause
#include <stoker/samplers.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "memory/seed.h"
#include "samplers/checked_size.h"
#include "samplers/engine_draws.h"
#include "samplers/generator_state.h"
#include "samplers/keyed_permutation.h"
#include "samplers/permutation.h"

namespace stoker {

struct SubsetRandomSampler::Epoch {
  explicit Epoch(int64_t size) : permutation(size) {}

  detail::Permutation permutation;
  size_t position = 0;
  bool fresh = true;  // nothing has been drawn for it
};

SubsetRandomSampler::SubsetRandomSampler(std::vector<int64_t> indices,
                                         std::optional<at::Generator> generator)
    : indices_(std::move(indices)),
      generator_(std::move(generator)),
      epoch_(std::make_unique<Epoch>(static_cast<int64_t>(indices_.size()))) {}

SubsetRandomSampler::~SubsetRandomSampler() = default;

void SubsetRandomSampler::reset() {
  epoch_->position = 0;
  epoch_->fresh = true;
}

void SubsetRandomSampler::begin() {
  const uint64_t draws = detail::Permutation::draws(static_cast<int64_t>(indices_.size()));
  epoch_->permutation.allocate();
  epoch_->permutation.begin(detail::take_draws(generator_, draws));
  epoch_->fresh = false;
}

std::optional<int64_t> SubsetRandomSampler::next() {
  if (epoch_->fresh) begin();
  if (epoch_->position == indices_.size()) return std::nullopt;
  return indices_[static_cast<size_t>(epoch_->permutation.at(epoch_->position++))];
}

void SubsetRandomSampler::skip(int64_t n) {
  if (epoch_->fresh) begin();
  epoch_->position += std::min(static_cast<size_t>(n), indices_.size() - epoch_->position);
}

StateDict SubsetRandomSampler::state_dict() const {
  return detail::GeneratorState::read(generator_).state_dict();
}

void SubsetRandomSampler::load_state_dict(const StateDict& state) {
  detail::GeneratorState::from(state).write(generator_);
}

namespace {

DistributedSamplerOptions checked(const DistributedSamplerOptions& options) {
  const auto refuse = [](const std::string& what) {
    throw std::invalid_argument("stoker: " + what);
  };
  const std::string replicas = std::to_string(options.num_replicas);
  if (options.num_replicas < 1) {
    refuse("num_replicas is " + replicas + "; give the number of processes, 1 or more");
  }
  if (options.rank < 0 || options.rank >= options.num_replicas) {
    refuse("rank is " + std::to_string(options.rank) + " of " + replicas +
           " replicas; it must be 0 to " + std::to_string(options.num_replicas - 1));
  }
  if (options.drop_last && !options.padding) {
    refuse("drop_last and padding = false exclude each other; drop_last needs no padding");
  }
  return options;
}

// How many of the first `count` positions are this rank's.
int64_t share(int64_t count, const DistributedSamplerOptions& options) {
  return std::max<int64_t>(count - options.rank + options.num_replicas - 1, 0) /
         options.num_replicas;
}

}  // namespace

struct DistributedSampler::Epoch {
  explicit Epoch(int64_t size) : permutation(size) {}

  detail::Permutation permutation;
  int64_t number = 0;
  int64_t yielded = 0;
  bool fresh = true;
};

DistributedSampler::DistributedSampler(int64_t size, DistributedSamplerOptions options)
    : size_(detail::checked_size(size)),
      options_(checked(options)),
      epoch_(std::make_unique<Epoch>(size)) {
  const int64_t whole = size / options_.num_replicas;
  const int64_t rounded_up = whole + (size % options_.num_replicas == 0 ? 0 : 1);
  valid_count_ = options_.drop_last ? whole : share(size, options_);
  count_ = options_.drop_last || !options_.padding ? valid_count_ : rounded_up;
}

DistributedSampler::~DistributedSampler() = default;

void DistributedSampler::reset() {
  epoch_->number = next_epoch_++;
  epoch_->yielded = 0;
  epoch_->fresh = true;
}

std::optional<int64_t> DistributedSampler::next() {
  if (epoch_->yielded == count_) return std::nullopt;
  if (options_.shuffle && epoch_->fresh) {
    epoch_->permutation.begin(
        at::mt19937(static_cast<uint64_t>(options_.seed) + static_cast<uint64_t>(epoch_->number)));
    epoch_->fresh = false;
  }
  const int64_t position = (options_.rank + epoch_->yielded++ * options_.num_replicas) % size_;
  if (!options_.shuffle) return position;
  return epoch_->permutation.at(static_cast<size_t>(position));
}

void DistributedSampler::skip(int64_t n) {
  epoch_->yielded += std::min(n, count_ - epoch_->yielded);
}

StateDict DistributedSampler::state_dict() const {
  StateDict state;
  state.set("epoch", next_epoch_);
  return state;
}

void DistributedSampler::load_state_dict(const StateDict& state) {
  next_epoch_ = state.integer("epoch");
}

namespace {

constexpr int64_t kMostShuffled = 65536;

}  // namespace

struct KeyedRandomSampler::Epoch {
  explicit Epoch(int64_t size) : shuffled(size) {}

  detail::Permutation shuffled;  // of few samples
  detail::KeyedPermutation keyed{1, 0};
  int64_t position = 0;
  bool fresh = true;
};

KeyedRandomSampler::KeyedRandomSampler(int64_t size, std::optional<at::Generator> generator)
    : size_(detail::checked_size(size)),
      generator_(std::move(generator)),
      epoch_(std::make_unique<Epoch>(size)) {
  if (size > kMostSamples) {
    throw std::invalid_argument("stoker: a KeyedRandomSampler's size is " + std::to_string(size) +
                                "; it may be at most 2^62");
  }
}

KeyedRandomSampler::~KeyedRandomSampler() = default;

void KeyedRandomSampler::reset() {
  epoch_->position = 0;
  epoch_->fresh = true;
}

void KeyedRandomSampler::begin() {
  epoch_->fresh = false;
  const uint64_t key = detail::draw_seed(generator_);
  if (size_ <= kMostShuffled) {
    epoch_->shuffled.begin(at::mt19937(key));
  } else {
    epoch_->keyed = detail::KeyedPermutation(static_cast<uint64_t>(size_), key);
  }
}

std::optional<int64_t> KeyedRandomSampler::next() {
  if (epoch_->fresh) begin();
  if (epoch_->position == size_) return std::nullopt;
  const auto position = static_cast<uint64_t>(epoch_->position++);
  if (size_ <= kMostShuffled) return epoch_->shuffled.at(position);
  return static_cast<int64_t>(epoch_->keyed(position));
}

void KeyedRandomSampler::skip(int64_t n) {
  if (epoch_->fresh) begin();
  epoch_->position += std::min(n, size_ - epoch_->position);
}

StateDict KeyedRandomSampler::state_dict() const {
  return detail::GeneratorState::read(generator_).state_dict();
}

void KeyedRandomSampler::load_state_dict(const StateDict& state) {
  detail::GeneratorState::from(state).write(generator_);
}

}  // namespace stoker
