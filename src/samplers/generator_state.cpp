// SPDX-License-Identifier: BSD-3-Clause
#include "samplers/generator_state.h"

#include <bit>
#include <charconv>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>

namespace stoker::detail {

namespace {

using Engine = at::mt19937_data_pod;

constexpr int64_t kBlock = at::MERSENNE_STATE_N;  // draws from one state of the engine
constexpr int64_t kMostDraws = 1 << 20;           // some milliseconds to find out

at::CPUGeneratorImpl* implementation(const std::optional<at::Generator>& generator) {
  return at::check_generator<at::CPUGeneratorImpl>(
      generator ? *generator : at::detail::getDefaultCPUGenerator());
}

void require(bool condition) {
  if (!condition) throw std::invalid_argument("stoker: the state's generator is damaged");
}

// Its words, eight digits each.
std::string to_hex(const Engine& engine) {
  std::string text;
  const auto add = [&text](uint32_t word) {
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  };
  add(static_cast<uint32_t>(engine.seed_ >> 32));
  add(static_cast<uint32_t>(engine.seed_));
  add(static_cast<uint32_t>(engine.left_));
  add(engine.next_);
  for (const uint32_t word : engine.state_) add(word);
  return text;
}

Engine from_hex(std::string_view text) {
  constexpr size_t kDigits = 8;
  require(text.size() == kDigits * (4 + kBlock));
  const auto take = [&text] {
    uint32_t word = 0;
    const char* const end = text.data() + kDigits;
    require(std::from_chars(text.data(), end, word, 16).ptr == end);
    text.remove_prefix(kDigits);
    return word;
  };
  Engine engine{};
  engine.seed_ = uint64_t{take()} << 32;
  engine.seed_ |= take();
  engine.left_ = static_cast<int>(take());
  engine.next_ = take();
  engine.seeded_ = true;
  for (uint32_t& word : engine.state_) word = take();
  return engine;
}

void draw(at::mt19937& engine, int64_t times) {
  for (int64_t i = 0; i < times; ++i) engine();
}

// How often was drawn since the engine was seeded, if not too often.
std::optional<int64_t> draws_since_seed(const Engine& wanted) {
  at::mt19937 engine(wanted.seed_);
  if (engine.data().state_ == wanted.state_) return 0;
  for (int64_t before = 0; before < kMostDraws; before += kBlock) {
    engine();
    if (engine.data().state_ == wanted.state_) return before + wanted.next_;
    draw(engine, kBlock - 1);
  }
  return std::nullopt;
}

}  // namespace

GeneratorState GeneratorState::of(at::CPUGeneratorImpl& generator) {
  return {generator.engine(), generator.next_float_normal_sample(),
          generator.next_double_normal_sample()};
}

void GeneratorState::put(at::CPUGeneratorImpl& generator) const {
  generator.set_engine(engine);
  generator.set_next_float_normal_sample(next_float);
  generator.set_next_double_normal_sample(next_double);
}

GeneratorState GeneratorState::read(const std::optional<at::Generator>& generator) {
  auto* const impl = implementation(generator);
  const std::lock_guard lock(impl->mutex_);
  return of(*impl);
}

void GeneratorState::write(const std::optional<at::Generator>& generator) const {
  auto* const impl = implementation(generator);
  const std::lock_guard lock(impl->mutex_);
  put(*impl);
}

StateDict GeneratorState::state_dict() const {
  StateDict state;
  const Engine data = engine.data();
  if (const auto draws = draws_since_seed(data)) {
    state.set("seed", static_cast<int64_t>(data.seed_));
    state.set("draws", *draws);
  } else {
    state.set("engine", to_hex(data));
  }
  if (next_float) state.set("next_float", int64_t{std::bit_cast<uint32_t>(*next_float)});
  if (next_double) state.set("next_double", std::bit_cast<int64_t>(*next_double));
  return state;
}

GeneratorState GeneratorState::from(const StateDict& state) {
  GeneratorState read{at::mt19937(0), std::nullopt, std::nullopt};
  if (state.contains("engine")) {
    const Engine data = from_hex(state.text("engine"));
    // The engine uses these without looking.
    require(data.left_ >= 1 && data.left_ <= kBlock && data.next_ <= kBlock + 1 - data.left_);
    read.engine.set_data(data);
  } else {
    const int64_t draws = state.integer("draws");
    require(draws >= 0 && draws <= kMostDraws + kBlock);
    read.engine = at::mt19937(static_cast<uint64_t>(state.integer("seed")));
    draw(read.engine, draws);
  }
  if (state.contains("next_float")) {
    read.next_float = std::bit_cast<float>(static_cast<uint32_t>(state.integer("next_float")));
  }
  if (state.contains("next_double")) {
    read.next_double = std::bit_cast<double>(state.integer("next_double"));
  }
  return read;
}

}  // namespace stoker::detail
