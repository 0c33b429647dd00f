// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace bench {

/// Sees to it that no rival wins with wrong data: each sample is whole (its first and last float
/// are its label), and each comes exactly once per epoch. Throws `std::runtime_error` otherwise.
/// It costs some nanoseconds per sample: few enough to stay within every measurement.
class BatchCheck {
 public:
  explicit BatchCheck(int64_t epoch_samples) : epoch_of_last_(epoch_samples, 0) {}

  /// `rows` samples of `width` floats each, one after the other, and their labels.
  void batch(const float* data, const int64_t* labels, int64_t rows, int64_t width);
  void epoch_complete();

 private:
  std::vector<uint32_t> epoch_of_last_;  // in which epoch sample i came last
  uint32_t epoch_ = 1;
  int64_t seen_ = 0;
};

}  // namespace bench
