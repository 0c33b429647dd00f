// SPDX-License-Identifier: BSD-3-Clause

// Any text as a state: one that comes back from JSON the same, or std::invalid_argument. The same
// for what a generator and an epoch's place make of it, and of any bytes as an engine.

#include <ATen/CPUGeneratorImpl.h>
#include <stoker/options.h>
#include <stoker/state_dict.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "loader/batch_source.h"
#include "samplers/generator_state.h"

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

// What is not refused must lead to an epoch that ends.
void check_place(const StateDict& place) {
  for (const auto on_error : {stoker::OnError::kRaise, stoker::OnError::kSkip}) {
    const stoker::DataLoaderOptions options{.batch_size = 3, .on_error = on_error};
    stoker::detail::BatchSource source(options, [] { return size_t{100}; });
    source.reset();
    try {
      source.check({}, place);
      source.resume(place);
      while (source.next()) {
      }
    } catch (const std::invalid_argument&) {
    }
  }
}

void check_json(std::string_view text) {
  try {
    const StateDict state = StateDict::from_json(text);
    if (StateDict::from_json(state.to_json()) != state) std::abort();
    check_generator(state);
    check_place(state);
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
