// SPDX-License-Identifier: BSD-3-Clause
#include "memory/seed.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace stoker::detail {

uint64_t draw_seed(const std::optional<at::Generator>& generator) {
  at::Tensor seed = at::empty({}, at::TensorOptions(at::kLong));
  seed.random_(generator);
  return static_cast<uint64_t>(*seed.const_data_ptr<int64_t>());
}

}  // namespace stoker::detail
