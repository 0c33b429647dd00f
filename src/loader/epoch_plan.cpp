// SPDX-License-Identifier: BSD-3-Clause
#include "loader/epoch_plan.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "memory/seed.h"

namespace stoker::detail {

namespace {

constexpr int64_t kVersion = 2;

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
  finished_ = false;
}

void EpochPlan::begin() {
  was_resumed_ = std::exchange(resumes_, false);
  if (was_resumed_) {
    if (auto task = next()) {
      source_->give_back(*std::move(task));
      return;
    }
    was_resumed_ = false;
  }
  ++epoch_;
  draw();
}

StateDict EpochPlan::state_dict() const {
  const Start start = finished_ ? now() : *start_;
  StateDict state;
  state.set("version", kVersion);
  state.set("epoch", finished_ ? epoch_ + 1 : epoch_);
  state.insert("generator", start.generator.state_dict());
  state.insert("source", start.source);
  if (!finished_) state.insert("place", source_->place());
  return state;
}

void EpochPlan::check(const StateDict& state) const {
  if (const int64_t version = state.integer("version"); version != kVersion) {
    throw std::invalid_argument("stoker: the state is of version " + std::to_string(version) +
                                ", and this library reads version " + std::to_string(kVersion));
  }
  count(state, "epoch");
  GeneratorState::from(state.extract("generator"));
  source_->check(state.extract("source"), state.extract("place"));
}

// The program's sampler comes first: should it refuse its state, nothing else has changed.
void EpochPlan::load_state_dict(const StateDict& state) {
  check(state);
  source_->load_state_dict(state.extract("source"));
  GeneratorState::from(state.extract("generator")).write(options_.generator);
  epoch_ = count(state, "epoch");
  draw();
  const StateDict place = state.extract("place");
  // Also if nothing was delivered: what the sampler draws for this epoch, it draws now.
  source_->resume(place.empty() ? source_->place() : place);
  resumes_ = true;
}

}  // namespace stoker::detail
