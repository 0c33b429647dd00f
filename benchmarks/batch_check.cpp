// SPDX-License-Identifier: BSD-3-Clause
#include "batch_check.h"

#include <stdexcept>
#include <string>

namespace bench {

void BatchCheck::batch(const float* data, const int64_t* labels, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t label = labels[row];
    const float* sample = data + row * width;
    const auto expected = static_cast<float>(label);
    if (sample[0] != expected || sample[width - 1] != expected) {
      throw std::runtime_error("wrong data: the floats of sample " + std::to_string(label) +
                               " are not its own");
    }
    if (label < 0 || label >= static_cast<int64_t>(epoch_of_last_.size()) ||
        epoch_of_last_[label] == epoch_) {
      throw std::runtime_error("wrong data: sample " + std::to_string(label) +
                               " came twice in an epoch, or is not of this dataset");
    }
    epoch_of_last_[label] = epoch_;
  }
  seen_ += rows;
}

void BatchCheck::epoch_complete() {
  if (seen_ != static_cast<int64_t>(epoch_of_last_.size())) {
    throw std::runtime_error("wrong data: an epoch had " + std::to_string(seen_) + " samples of " +
                             std::to_string(epoch_of_last_.size()));
  }
  ++epoch_;
  seen_ = 0;
}

}  // namespace bench
