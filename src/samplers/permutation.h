// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The order that torch::randperm draws, made in stretches: the first batch need not wait for
// millions of indices to be shuffled.

#include <ATen/core/MT19937RNGEngine.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace stoker::detail {

class Permutation {
 public:
  explicit Permutation(int64_t size) : size_(size) {}

  // How often an engine is drawn from for a whole one.
  static uint64_t draws(int64_t size);

  // Takes the memory for the order. Throws std::runtime_error if there is not enough. `begin` does
  // it too; call it before what must not have happened in vain.
  void allocate();
  // A new one, drawn from here on.
  void begin(const at::mt19937& engine);
  int64_t at(size_t position) {
    while (position >= permuted_) permute_more();
    return order_[position];
  }
  // Draws the rest; returns where the engine is then.
  at::mt19937 finish();

 private:
  void permute_more();

  int64_t size_;
  std::vector<int64_t> order_;
  at::mt19937 engine_;
  size_t permuted_ = 0;  // as far as order_ is
};

}  // namespace stoker::detail
