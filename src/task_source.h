// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What the batches of an epoch are to be made of.

#include <stoker/state_dict.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace stoker::detail {

// One batch to make.
struct Task {
  std::vector<int64_t> indices;                   // of its samples
  uint64_t position = 0;                          // of the first of them in the epoch
  std::optional<uint32_t> worker = std::nullopt;  // who alone can make it
};

// Main process only.
class TaskSource {
 public:
  virtual ~TaskSource() = default;

  // Begins an epoch.
  virtual void reset() = 0;
  // The next batch; nothing at the end of the epoch. Throws what the sampler throws.
  virtual std::optional<Task> next() = 0;
  // Leaves out that many batches with that many samples, which are the next ones.
  virtual void skip(int64_t batches, uint64_t samples) = 0;

  // Batches per epoch, where that is known.
  virtual std::optional<int64_t> batches_per_epoch() const = 0;

  // What later epochs depend on; between epochs.
  virtual StateDict state_dict() const = 0;
  virtual void load_state_dict(const StateDict& state) = 0;
};

}  // namespace stoker::detail
