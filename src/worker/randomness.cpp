// SPDX-License-Identifier: BSD-3-Clause
#include "worker/randomness.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>

namespace stoker::detail {

namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t sample_seed(uint64_t epoch_seed, uint64_t position) {
  return mix(mix(epoch_seed) + position);
}

TorchRandom::TorchRandom()
    : generator_(at::detail::getDefaultCPUGenerator()),
      impl_(at::check_generator<at::CPUGeneratorImpl>(generator_)) {}

void TorchRandom::seed(uint64_t seed) {
  const std::lock_guard lock(generator_.mutex());
  impl_->set_current_seed(seed);
  seed_ = seed;
}

// A fresh engine has left_ 1 and next_ 0; the first draw changes both, and next_ is never 0 again.
bool TorchRandom::drawn() {
  const std::lock_guard lock(generator_.mutex());
  const at::mt19937_data_pod data = impl_->engine().data();
  return data.left_ != 1 || data.next_ != 0 || data.seed_ != seed_;
}

// Copying a seeded engine is far cheaper than seeding one.
void TorchRandom::arm() {
  if (!armed_) {
    seed(0);
    const std::lock_guard lock(generator_.mutex());
    armed_ = GeneratorState::of(*impl_);
    return;
  }
  const std::lock_guard lock(generator_.mutex());
  armed_->put(*impl_);
  seed_ = 0;
}

void TorchRandom::save() {
  const std::lock_guard lock(generator_.mutex());
  program_ = GeneratorState::of(*impl_);
}

void TorchRandom::restore() {
  const std::lock_guard lock(generator_.mutex());
  program_->put(*impl_);
}

void LibcRandom::seed(uint64_t seed) {
  srandom(static_cast<unsigned>(seed));
  seeded_ = state_;
}

bool LibcRandom::drawn() const {
  return !std::equal(state_.begin() + 1, state_.end(), seeded_.begin() + 1);
}

void LibcRandom::save() {
  auto* state = reinterpret_cast<char*>(state_.data());
  program_ = used_ ? setstate(state) : initstate(1, state, sizeof state_);
  used_ = true;
}

void LibcRandom::restore() { setstate(program_); }

}  // namespace stoker::detail
