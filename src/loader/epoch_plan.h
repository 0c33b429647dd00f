// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The epochs of a loader: what each draws and yields, how far the program is in it, and all that as
// a state to resume from.
//
// The state tells where the generator and the sampler were when the epoch began, and how much of it
// was delivered: to resume is to begin that epoch once more, and to leave that much out.
//
// Process safety: main only.

#include <stoker/options.h>
#include <stoker/state_dict.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "loader/task_source.h"
#include "samplers/generator_state.h"

namespace stoker::detail {

class EpochPlan {
 public:
  EpochPlan(const DataLoaderOptions& options, std::unique_ptr<TaskSource> source)
      : options_(options), source_(std::move(source)) {}

  // Begins the next epoch, or goes on with one that was loaded if something is left of it. Draws
  // the seed, in the order in which Python's DataLoader draws.
  void begin();
  uint64_t seed() const { return seed_; }
  // Whether this epoch was begun by another loader.
  bool was_resumed() const { return was_resumed_; }
  // Epochs begun before this one.
  int64_t epoch() const { return epoch_; }

  // The next batch to make; nothing at the end of the epoch. Throws what the source throws.
  std::optional<Task> next() { return source_->next(); }
  // All batches were handed out.
  void finish() { finished_ = true; }

  TaskSource& source() { return *source_; }
  const TaskSource& source() const { return *source_; }

  // Once the epoch is finished, that of the next one.
  StateDict state_dict() const;
  // At once, and not when the epoch begins, sets the generator and draws from it: a program that
  // restores the default generator itself does so after this.
  // Throws what `check` throws, and what the program's sampler throws of its part.
  void load_state_dict(const StateDict& state);
  // Throws std::invalid_argument for a state that is damaged, or of another kind of loader. Changes
  // nothing.
  void check(const StateDict& state) const;

 private:
  // What an epoch depends on.
  struct Start {
    GeneratorState generator;
    StateDict source;
  };
  Start now() const { return {GeneratorState::read(options_.generator), source_->state_dict()}; }
  void draw();

  const DataLoaderOptions& options_;
  std::unique_ptr<TaskSource> source_;
  std::optional<Start> start_;  // of this epoch
  int64_t epoch_ = -1;
  uint64_t seed_ = 0;
  bool finished_ = true;
  bool resumes_ = false;  // a state was loaded, and its epoch has not begun
  bool was_resumed_ = false;
};

}  // namespace stoker::detail
