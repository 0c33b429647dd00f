// SPDX-License-Identifier: BSD-3-Clause
// What torch::multinomial draws, which refuses more than 2^24 weights.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/topk.h>
#include <stoker/samplers.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "samplers/checked_size.h"
#include "samplers/engine_draws.h"
#include "samplers/generator_state.h"

namespace stoker {

namespace {

using detail::EngineDraws;

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("stoker: " + what);
}

void check_weights(const std::vector<double>& weights) {
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0) || std::isinf(weights[i])) {
      refuse("weight " + std::to_string(i) + " is " + std::to_string(weights[i]) +
             "; weights must be finite, and 0 or more");
    }
    sum += weights[i];
  }
  if (sum == 0) refuse("all weights are 0, or there are none; one at least must be greater");
  if (std::isinf(sum)) refuse("the weights add up to infinity; divide them by the greatest");
}

void check_enough(const std::vector<double>& weights, int64_t num_samples) {
  const auto zeros = std::ranges::count(weights, 0.0);
  const auto possible = static_cast<int64_t>(weights.size()) - zeros;
  if (num_samples <= possible) return;
  refuse("num_samples is " + std::to_string(num_samples) + ", and without replacement only " +
         std::to_string(possible) + " samples of a weight above 0 can be drawn");
}

// The sums of the weights up to each, of all of them 1.
void add_up(std::vector<double>& weights) {
  double sum = 0;
  for (double& weight : weights) weight = sum += weight;
  for (double& weight : weights) weight /= sum;
}

// The `count` greatest of weight / x, x drawn from an exponential distribution.
std::vector<int64_t> draw_all(const std::vector<double>& weights, int64_t count,
                              const std::optional<at::Generator>& generator) {
  const at::Tensor all =
      at::from_blob(const_cast<double*>(weights.data()), {static_cast<int64_t>(weights.size())},
                    at::TensorOptions(at::kDouble));
  at::Tensor keys = at::empty_like(all).exponential_(1, generator);
  auto* const key = keys.mutable_data_ptr<double>();
  for (size_t i = 0; i < weights.size(); ++i) {
    key[i] = weights[i] == 0 ? -1 : weights[i] / key[i];  // torch's 0 may be another's 0, too
  }
  const at::Tensor drawn = std::get<1>(at::topk(keys, count));
  const auto* indices = drawn.const_data_ptr<int64_t>();
  return {indices, indices + count};
}

}  // namespace

struct WeightedRandomSampler::Epoch {
  EngineDraws draws{at::mt19937()};  // one by one
  std::vector<int64_t> drawn;        // or all at once
  int64_t position = 0;
  bool fresh = true;  // nothing has been drawn for it
};

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, int64_t num_samples,
                                             bool replacement,
                                             std::optional<at::Generator> generator)
    : weights_(std::move(weights)),
      num_samples_(detail::checked_num_samples(num_samples)),
      one_by_one_(replacement && num_samples > 1),  // as torch::multinomial
      generator_(std::move(generator)),
      epoch_(std::make_unique<Epoch>()) {
  check_weights(weights_);
  if (!replacement) check_enough(weights_, num_samples_);
  if (one_by_one_) add_up(weights_);
}

WeightedRandomSampler::~WeightedRandomSampler() = default;

void WeightedRandomSampler::reset() {
  epoch_->position = 0;
  epoch_->fresh = true;
}

void WeightedRandomSampler::begin() {
  epoch_->fresh = false;
  if (one_by_one_) {
    const auto num_samples = static_cast<uint64_t>(num_samples_);
    epoch_->draws =
        EngineDraws(detail::take_epoch(generator_, num_samples, EngineDraws::kDrawsOfUniform));
  } else {
    epoch_->drawn = draw_all(weights_, num_samples_, generator_);
  }
}

std::optional<int64_t> WeightedRandomSampler::next() {
  if (epoch_->fresh) begin();
  if (epoch_->position == num_samples_) return std::nullopt;
  const auto position = static_cast<size_t>(epoch_->position++);
  if (!one_by_one_) return epoch_->drawn[position];
  const double mass = epoch_->draws.uniform();
  const auto found = mass == 0 ? std::ranges::upper_bound(weights_, mass)  // not a weight of 0
                               : std::ranges::lower_bound(weights_, mass);
  return found - weights_.begin();
}

void WeightedRandomSampler::skip(int64_t n) {
  if (epoch_->fresh) begin();
  n = std::min(n, num_samples_ - epoch_->position);
  epoch_->position += n;
  if (!one_by_one_) return;
  for (; n > 0; --n) epoch_->draws.uniform();
}

StateDict WeightedRandomSampler::state_dict() const {
  return detail::GeneratorState::read(generator_).state_dict();
}

void WeightedRandomSampler::load_state_dict(const StateDict& state) {
  detail::GeneratorState::from(state).write(generator_);
}

}  // namespace stoker
