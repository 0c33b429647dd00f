// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Where a CPU generator of torch's is: to be kept, put back, and told in few bytes.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <stoker/state_dict.h>

#include <optional>

namespace stoker::detail {

struct GeneratorState {
  at::mt19937 engine;
  std::optional<float> next_float;  // the second of a pair of normal numbers
  std::optional<double> next_double;

  // The caller holds the generator's lock.
  static GeneratorState of(at::CPUGeneratorImpl& generator);
  void put(at::CPUGeneratorImpl& generator) const;

  // The same of this generator, or of torch's default one, under its lock.
  static GeneratorState read(const std::optional<at::Generator>& generator);
  void write(const std::optional<at::Generator>& generator) const;

  // A seed and how often was drawn since, where the engine is not more than a million draws from
  // its seed; else all of the engine, 5 KB of text.
  StateDict state_dict() const;
  // Throws std::invalid_argument for a state that is none.
  static GeneratorState from(const StateDict& state);
};

}  // namespace stoker::detail
