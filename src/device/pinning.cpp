// SPDX-License-Identifier: BSD-3-Clause
#include "device/pinning.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

namespace stoker::detail {

namespace {

std::optional<c10::Device> device_of(const DataLoaderOptions& options) {
  if (options.device) {
    const c10::Device device = usable_device(*options.device, "device");
    if (!device.is_cpu()) return device;
  }
  return options.pin_memory ? default_accelerator() : std::nullopt;
}

// Some backends have no pinned memory at all.
bool can_copy_to_pinned() {
  try {
    return at::empty({1}, at::TensorOptions().pinned_memory(true)).is_pinned();
  } catch (const c10::Error&) {
    return false;
  }
}

Pinning choose(c10::Device device, const std::optional<HostPinApi>& api) {
  if (api && install_host_guard(device.type())) return Pinning::kInPlace;
  if (can_copy_to_pinned()) return Pinning::kCopied;
  TORCH_WARN("stoker: pin_memory is true, but ", device,
             " has no pinned memory; batches will not be pinned");
  return Pinning::kNone;
}

}  // namespace

void use_accelerator(SlotPool& pool, const DataLoaderOptions& options) {
  const auto device = device_of(options);
  if (!device) {
    if (options.pin_memory) {
      TORCH_WARN_ONCE(
          "stoker: pin_memory is true, but no accelerator was found; memory will not be pinned");
    }
    return;
  }
  // Before that, no memory counts as pinned, whatever it is.
  at::globalContext().lazyInitDevice(device->type());
  const auto api = find_host_pin_api(device->type());
  pool.use_device(*device, options.pin_memory ? choose(*device, api) : Pinning::kNone, api);
}

}  // namespace stoker::detail
