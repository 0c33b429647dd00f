// SPDX-License-Identifier: BSD-3-Clause
#include "device/device_stage.h"

namespace stoker::detail {

DeviceStage::DeviceStage(at::Device device) : batches_(device, {}, "device") {}

bool DeviceStage::next(const std::function<bool(BatchLeaves&)>& pull, BatchLeaves& batch) {
  auto next = batches_.next([&pull]() -> std::optional<BatchLeaves> {
    BatchLeaves pulled;
    if (!pull(pulled)) return std::nullopt;
    return pulled;
  });
  if (next) batch = *std::move(next);
  return next.has_value();
}

std::vector<at::Tensor*> DeviceStage::Tensors::operator()(BatchLeaves& batch) const {
  std::vector<at::Tensor*> tensors;
  for (auto& leaf : batch.leaves) {
    if (!leaf.is_number) tensors.push_back(&leaf.tensor);
  }
  return tensors;
}

}  // namespace stoker::detail
