// SPDX-License-Identifier: BSD-3-Clause
#include "epoch_plan.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "seed.h"

namespace stoker::detail {

namespace {

constexpr int64_t kVersion = 1;

int64_t count(const StateDict& state, const char* name) {
  const int64_t value = state.integer(name);
  if (value < 0) {
    throw std::invalid_argument("stoker: the state is damaged: its " + std::string(name) + " is " +
                                std::to_string(value));
  }
  return value;
}

}  // namespace

void EpochPlan::draw() {
  start_ = now();
  seed_ = draw_seed(options_.generator);
  source_->reset();
  taken_ = 0;
  next_.reset();
  finished_ = false;
}

void EpochPlan::begin() {
  was_resumed_ = std::exchange(resumes_, false);
  if (was_resumed_) {
    next_ = next();
    if (next_) return;
    was_resumed_ = false;
  }
  ++epoch_;
  draw();
}

std::optional<Task> EpochPlan::next() {
  if (next_) return std::exchange(next_, std::nullopt);
  return source_->next();
}

StateDict EpochPlan::state_dict() const {
  const Start start = finished_ ? now() : *start_;
  StateDict state;
  state.set("version", kVersion);
  state.set("epoch", finished_ ? epoch_ + 1 : epoch_);
  state.insert("generator", start.generator.state_dict());
  state.insert("source", start.source);
  if (!finished_) state.insert("place", source_->place());
  if (!finished_ && taken_ > 0) state.set("taken", taken_);
  return state;
}

void EpochPlan::load_state_dict(const StateDict& state) {
  if (const int64_t version = state.integer("version"); version != kVersion) {
    throw std::invalid_argument("stoker: the state is of version " + std::to_string(version) +
                                ", and this library reads version " + std::to_string(kVersion));
  }
  const int64_t epoch = count(state, "epoch");
  const int64_t taken = state.contains("taken") ? count(state, "taken") : 0;
  const auto generator = GeneratorState::from(state.extract("generator"));
  source_->load_state_dict(state.extract("source"));
  generator.write(options_.generator);
  epoch_ = epoch;
  draw();
  const StateDict place = state.extract("place");
  // Also if nothing was delivered: what the sampler draws for this epoch, it draws now.
  source_->resume(place.empty() ? source_->place() : place);
  while (taken_ < taken && source_->take_last()) ++taken_;
  resumes_ = true;
}

}  // namespace stoker::detail
