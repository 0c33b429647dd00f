// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the batches of an epoch are to be made of.

#include <stoker/detail/flat_sample.h>
#include <stoker/state_dict.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace stoker::detail {

// One batch to make.
struct Task {
  uint64_t num_samples = 0;         // of a stream: at most
  std::vector<int64_t> indices;     // of the samples; none of a stream
  uint64_t position = 0;            // of the first sample: in the epoch, or in the worker's stream
  std::vector<uint64_t> positions;  // of each sample, where they do not follow the first
  std::optional<uint32_t> worker;   // whose stream it is
  std::string stream_state;         // for a worker that begins with this batch

  static Task of(std::vector<int64_t> indices, uint64_t position);
  uint64_t position_of(size_t sample) const {
    return positions.empty() ? position + sample : positions[sample];
  }
  // Behind the position of the last sample.
  uint64_t end() const { return num_samples == 0 ? position : position_of(num_samples - 1) + 1; }
};

// A batch that was handed out.
using Delivery = BatchLeaves::Delivery;

// Main process only.
class TaskSource {
 public:
  virtual ~TaskSource() = default;

  // Begins an epoch.
  void reset();
  // The next batch that was not delivered: one that was given back, or else a new one; nothing at
  // the end of the epoch, or as far as is known so far. Throws what the sampler throws, and then
  // throws that again, in its turn behind what is given back.
  virtual std::optional<Task> next() { return take(); }
  // The batch, which `next` gave and which was not delivered, is the next one once more. Of
  // several, give the last one back first.
  void give_back(Task task) { given_back_.push_front(std::move(task)); }
  virtual void deliver(const Delivery& delivery) = 0;
  // This worker's stream has no more.
  virtual void end_stream(uint32_t worker) = 0;

  // Batches per epoch, where that is known.
  virtual std::optional<int64_t> batches_per_epoch() const = 0;

  // What later epochs depend on; between epochs.
  virtual StateDict state_dict() const = 0;
  virtual void load_state_dict(const StateDict& state) = 0;
  // What was delivered of this epoch; after `reset`, leaves that out.
  virtual StateDict place() const = 0;
  virtual void resume(const StateDict& place) = 0;
  // Throws std::invalid_argument for a state, or a place (which may be empty), that the two above
  // would not take, but for what a sampler of the program's refuses. Changes nothing.
  virtual void check(const StateDict& state, const StateDict& place) const = 0;

 protected:
  std::optional<Task> take();
  virtual void begin() = 0;
  virtual std::optional<Task> draw() = 0;

 private:
  std::deque<Task> given_back_;
  std::exception_ptr error_;  // that drawing ended with
};

}  // namespace stoker::detail
