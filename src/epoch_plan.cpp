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
  next_.reset();
  finished_ = false;
}

void EpochPlan::begin() {
  if (std::exchange(resumes_, false)) {
    next_ = next();
    if (next_) return;
  }
  ++epoch_;
  place_ = {};
  draw();
}

std::optional<Task> EpochPlan::next() {
  if (next_) return std::exchange(next_, std::nullopt);
  auto task = source_->next();
  while (task && place_.was_delivered(task->position)) task = source_->next();
  return task;
}

StateDict EpochPlan::state_dict() const {
  const Start start = finished_ ? now() : *start_;
  StateDict state = finished_ ? Place().state_dict() : place_.state_dict();
  state.set("version", kVersion);
  state.set("epoch", finished_ ? epoch_ + 1 : epoch_);
  state.insert("generator", start.generator.state_dict());
  state.insert("source", start.source);
  return state;
}

void EpochPlan::load_state_dict(const StateDict& state) {
  if (const int64_t version = state.integer("version"); version != kVersion) {
    throw std::invalid_argument("stoker: the state is of version " + std::to_string(version) +
                                ", and this library reads version " + std::to_string(kVersion));
  }
  const int64_t epoch = count(state, "epoch");
  const Place place = Place::from(state);
  const auto generator = GeneratorState::from(state.extract("generator"));
  source_->load_state_dict(state.extract("source"));
  generator.write(options_.generator);
  epoch_ = epoch;
  draw();
  place_ = place;
  source_->skip(place.batches(), place.samples());
  resumes_ = true;
}

}  // namespace stoker::detail
