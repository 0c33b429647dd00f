// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace stoker::detail {

// What samplers ask of a number of samples. Throw std::invalid_argument.
inline int64_t checked_size(int64_t size) {
  if (size >= 0) return size;
  throw std::invalid_argument("stoker: a sampler's size is " + std::to_string(size) +
                              "; it must be 0 or more");
}
inline int64_t checked_num_samples(int64_t num_samples) {
  if (num_samples >= 1) return num_samples;
  throw std::invalid_argument("stoker: num_samples is " + std::to_string(num_samples) +
                              "; it must be 1 or more");
}

}  // namespace stoker::detail
