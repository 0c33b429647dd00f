// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Randomness inside `get`: before each sample, torch's default generator and C's rand() are in a
// state that depends on (epoch seed, position) alone, whoever fetches it and whatever was fetched
// before.
//
// Seeding costs more than a tiny sample does. So it is learned whether the dataset draws at all:
// the first samples are seeded and watched; if none of them drew, no sample is seeded from then on,
// only watched. Should one draw after all, the caller is told to fetch those samples again, seeded,
// and every later sample is seeded.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include <array>
#include <cstdint>
#include <optional>

#include "samplers/generator_state.h"

namespace stoker::detail {

// The seed of the sample at this position of the epoch.
uint64_t sample_seed(uint64_t epoch_seed, uint64_t position);

// torch's default CPU generator.
class TorchRandom {
 public:
  TorchRandom();

  void seed(uint64_t seed);
  // Whether anything was drawn since the last `seed` or `arm`.
  bool drawn();
  // Puts it in a state in which a draw shows.
  void arm();

  // Keeps the program's own state, and puts it back.
  void save();
  void restore();

 private:
  at::Generator generator_;
  at::CPUGeneratorImpl* impl_;
  std::optional<GeneratorState> program_;
  std::optional<GeneratorState> armed_;
  uint64_t seed_ = 0;
};

// C's rand() and random(), on a state of our own.
class LibcRandom {
 public:
  LibcRandom() = default;
  LibcRandom(const LibcRandom&) = delete;
  LibcRandom& operator=(const LibcRandom&) = delete;

  void seed(uint64_t seed);
  bool drawn() const;
  void arm() { seeded_ = state_; }

  void save();
  void restore();

 private:
  using State = std::array<uint32_t, 32>;
  State state_{};   // word 0 is the C library's own
  State seeded_{};  // as it was when last seeded
  char* program_ = nullptr;
  bool used_ = false;
};

template <class Source>
class Watched {
 public:
  void enter() {
    source_.save();
    if (mode_ == Mode::kQuiet) source_.arm();
  }
  void leave() { source_.restore(); }

  void before(uint64_t seed) {
    if (mode_ != Mode::kQuiet) source_.seed(seed);
  }
  void after() {
    if (mode_ != Mode::kLearning) return;
    if (source_.drawn()) {
      mode_ = Mode::kDrawing;
    } else if (++quiet_samples_ == kLearnFrom) {
      mode_ = Mode::kQuiet;
      source_.arm();
    }
  }
  // Seeds each sample from now on.
  void always() { mode_ = Mode::kDrawing; }
  // Between these two something else than a sample draws, and is no surprise.
  void begin_other(uint64_t seed) { source_.seed(seed); }
  void end_other() {
    if (mode_ == Mode::kQuiet) source_.arm();
  }
  // True if samples since the last call drew although nothing was seeded.
  bool surprised() {
    if (mode_ != Mode::kQuiet || !source_.drawn()) return false;
    mode_ = Mode::kDrawing;
    return true;
  }

 private:
  enum class Mode : uint8_t { kLearning, kQuiet, kDrawing };
  static constexpr int kLearnFrom = 32;

  Source source_;
  Mode mode_ = Mode::kLearning;
  int quiet_samples_ = 0;
};

// Both of them. Used by one thread; `enter` and `leave` bracket the use, so that the generators of
// a program that fetches in its own process are as they were.
class SampleRandomness {
 public:
  void enter() {
    torch_.enter();
    libc_.enter();
  }
  void leave() {
    libc_.leave();
    torch_.leave();
  }
  void before(uint64_t seed) {
    torch_.before(seed);
    libc_.before(seed);
  }
  void after() {
    torch_.after();
    libc_.after();
  }
  void always() {
    torch_.always();
    libc_.always();
  }
  void begin_other(uint64_t seed) {
    torch_.begin_other(seed);
    libc_.begin_other(seed);
  }
  void end_other() {
    torch_.end_other();
    libc_.end_other();
  }
  // Call after a few samples: whether they must be fetched again.
  bool surprised() {
    const bool torch = torch_.surprised();
    return libc_.surprised() || torch;
  }

 private:
  Watched<TorchRandom> torch_;
  Watched<LibcRandom> libc_;
};

}  // namespace stoker::detail
