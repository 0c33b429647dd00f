// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the batches of an epoch are to be made of.

#include <stoker/detail/flat_sample.h>
#include <stoker/state_dict.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stoker::detail {

// One batch to make.
struct Task {
  std::vector<int64_t> indices;  // of its samples; of a stream, their numbers in it
  uint64_t position = 0;         // of the first of them, in the epoch or in the stream
  std::optional<uint32_t> worker = std::nullopt;  // whose stream it is
  std::string stream_state = {};                  // for a worker that begins with this batch
};

// A batch that was handed out.
using Delivery = BatchLeaves::Delivery;

// Main process only.
class TaskSource {
 public:
  virtual ~TaskSource() = default;

  // Begins an epoch.
  virtual void reset() = 0;
  // The next batch that was not delivered; nothing at the end of the epoch, or as far as is known
  // so far. Throws what the sampler throws.
  virtual std::optional<Task> next() = 0;
  virtual void deliver(const Delivery& delivery) = 0;
  // Takes the epoch's last sample away that `next` has not given yet; nothing if there is none.
  virtual std::optional<int64_t> take_last() = 0;
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
};

}  // namespace stoker::detail
