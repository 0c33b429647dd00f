// SPDX-License-Identifier: BSD-3-Clause

// Any text as a state: one that comes back from JSON the same, or std::invalid_argument. The same
// for what a generator makes of it, and of any bytes as its engine.

#include <ATen/CPUGeneratorImpl.h>
#include <stoker/state_dict.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "generator_state.h"

namespace {

using stoker::StateDict;
using stoker::detail::GeneratorState;

void check_generator(const StateDict& state) {
  try {
    const GeneratorState read = GeneratorState::from(state);
    at::CPUGeneratorImpl generator(0);
    read.put(generator);
    for (int i = 0; i < 2 * at::MERSENNE_STATE_N; ++i) generator.random();
  } catch (const std::invalid_argument&) {
  }
}

void check_json(std::string_view text) {
  try {
    const StateDict state = StateDict::from_json(text);
    if (StateDict::from_json(state.to_json()) != state) std::abort();
    check_generator(state);
  } catch (const std::invalid_argument&) {
  }
}

// The bytes choose digits that lie over those of a sound engine, or most would be refused at once.
void check_engine(std::string_view bytes) {
  static const std::string sound = [] {
    at::Generator far = at::make_generator<at::CPUGeneratorImpl>(1);
    auto* const generator = at::check_generator<at::CPUGeneratorImpl>(far);
    for (int i = 0; i < 3'000'000; ++i) generator->random();
    return GeneratorState::read(far).state_dict().text("engine");
  }();
  std::string engine = sound;
  for (size_t i = 0; i < std::min(bytes.size(), engine.size()); ++i) {
    engine[i] = "0123456789abcdef"[bytes[i] & 15];
  }
  StateDict state;
  state.set("engine", engine);
  check_generator(state);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_json(text);
  check_engine(text);
  return 0;
}
