// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Numbers drawn one by one from an engine, as torch's operators draw them from a generator.

#include <ATen/core/DistributionsHelper.h>  // and TransformationHelper.h, which has no guard
#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>

#include <cstdint>
#include <optional>

namespace stoker::detail {

// The engine of this generator, or of torch's default one, as it is; the generator's own is then
// moved on by so many draws, under its lock.
at::mt19937 take_draws(const std::optional<at::Generator>& generator, uint64_t draws);

// Above so many draws, to move a generator on takes a noticeable part of a second.
constexpr uint64_t kMostTaken = uint64_t{1} << 28;

// What an epoch of `count` things, each of `draws` draws, is drawn from: as `take_draws`, or, above
// kMostTaken, an engine of its own, whose seed is all that is drawn from the generator.
at::mt19937 take_epoch(const std::optional<at::Generator>& generator, uint64_t count,
                       uint64_t draws);

class EngineDraws {
 public:
  explicit EngineDraws(const at::mt19937& engine) : engine_(engine) {}

  // One number of torch::randint(size), and of torch::rand in double precision.
  int64_t index(int64_t size) {
    return at::uniform_int_from_to_distribution<int64_t>(static_cast<uint64_t>(size), 0)(this);
  }
  double uniform() { return at::transformation::uniform_real<double>(random64(), 0, 1); }

  // How often `index` draws from the engine.
  static uint64_t draws_of_index(int64_t size) {
    Counter counter;
    at::uniform_int_from_to_distribution<int64_t>(static_cast<uint64_t>(size), 0)(&counter);
    return counter.draws;
  }
  static constexpr uint64_t kDrawsOfUniform = 2;

  // What torch's distributions call.
  uint32_t random() { return engine_(); }
  uint64_t random64() {
    const uint64_t high = engine_();
    return high << 32 | engine_();
  }

 private:
  struct Counter {
    uint64_t draws = 0;
    uint32_t random() { return static_cast<uint32_t>(++draws); }
    uint64_t random64() { return draws += 2; }
  };

  at::mt19937 engine_;
};

}  // namespace stoker::detail
