// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// How far the program is in an epoch: the batches that it was given. Unless `in_order`, some come
// before their turn.
//
// Process safety: main only.

#include <stoker/state_dict.h>

#include <cstdint>
#include <map>

namespace stoker::detail {

class Place {
 public:
  // A batch of n samples that begins with the epoch's sample `position` was handed out.
  void deliver(uint64_t position, uint64_t n);
  bool was_delivered(uint64_t position) const {
    return position < samples_ || ahead_.contains(position);
  }

  // All batches before were delivered, and this one was not.
  int64_t batches() const { return batches_; }
  uint64_t samples() const { return samples_; }

  StateDict state_dict() const;
  // Throws std::invalid_argument for a state that is none.
  static Place from(const StateDict& state);

 private:
  int64_t batches_ = 0;
  uint64_t samples_ = 0;
  std::map<uint64_t, uint64_t> ahead_;  // position and size of batches delivered before their turn
};

}  // namespace stoker::detail
