// SPDX-License-Identifier: BSD-3-Clause
#include "samplers/engine_draws.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "memory/seed.h"

namespace stoker::detail {

at::mt19937 take_draws(const std::optional<at::Generator>& generator, uint64_t draws) {
  auto* const impl = at::check_generator<at::CPUGeneratorImpl>(
      generator ? *generator : at::detail::getDefaultCPUGenerator());
  const std::lock_guard lock(impl->mutex_);
  const at::mt19937 before = impl->engine();
  at::mt19937 after = before;
  for (; draws > 0; --draws) after();
  impl->set_engine(after);
  return before;
}

at::mt19937 take_epoch(const std::optional<at::Generator>& generator, uint64_t count,
                       uint64_t draws) {
  const bool too_many = draws > 0 && count > kMostTaken / draws;  // the product may overflow
  return too_many ? at::mt19937(draw_seed(generator)) : take_draws(generator, count * draws);
}

}  // namespace stoker::detail
