// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A permutation of 0 .. size - 1 whose every entry is computed from a key, alone and in constant
// time: a Feistel network over the cells of a table, walking on from cells that are beyond the
// size. Black and Rogaway, "Ciphers with arbitrary finite domains" (2002), describe both parts.

#include <array>
#include <cmath>
#include <cstdint>

namespace stoker::detail {

class KeyedPermutation {
 public:
  // 1 to 2^62 entries. Of few (below some thousands) not all permutations are equally likely.
  KeyedPermutation(uint64_t size, uint64_t key) : size_(size) {
    rows_ = static_cast<uint64_t>(std::sqrt(static_cast<double>(size)));
    while (rows_ * rows_ < size) ++rows_;  // the root rounded up, or one more
    columns_ = (size + rows_ - 1) / rows_;
    for (uint64_t& round : rounds_) round = mix(key += 0x9e3779b97f4a7c15);
  }

  // The table has fewer than `rows_` cells beyond the size: a second step is rare, and where one
  // starts from an entry, the walk must come to one.
  uint64_t operator()(uint64_t position) const {
    do {
      position = permute(position);
    } while (position >= size_);
    return position;
  }

 private:
  uint64_t permute(uint64_t cell) const {
    uint64_t row = cell / columns_;
    uint64_t column = cell % columns_;
    for (size_t i = 0; i < rounds_.size(); i += 2) {
      row += below(rows_, column ^ rounds_[i]);
      if (row >= rows_) row -= rows_;
      column += below(columns_, row ^ rounds_[i + 1]);
      if (column >= columns_) column -= columns_;
    }
    return row * columns_ + column;
  }

  __extension__ using Wide = unsigned __int128;

  // A number below the bound that looks random.
  static uint64_t below(uint64_t bound, uint64_t x) {
    x *= kOdd;
    x ^= x >> 32;
    x *= kOdd;
    return static_cast<uint64_t>(static_cast<Wide>(x) * bound >> 64);
  }

  static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= kOdd;
    x ^= x >> 32;
    x *= kOdd;
    return x ^ x >> 32;
  }

  static constexpr uint64_t kOdd = 0xd6e8feb86659fd93;

  uint64_t size_;
  uint64_t rows_;
  uint64_t columns_;
  std::array<uint64_t, 8> rounds_{};
};

}  // namespace stoker::detail
