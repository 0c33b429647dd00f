// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Devices and their events, in libtorch's words that every backend shares; no CUDA header needed.

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <string_view>

namespace stoker::detail {

// How many devices of that type can be used now. Asks the driver, and so initialises it: only
// after workers were forked.
int device_count(c10::DeviceType type);

// The device that is meant: with its index, the calling thread's current one if it has none. Throws
// std::invalid_argument that names the option if it cannot be used. The CPU always can, and has no
// index.
c10::Device usable_device(c10::Device device, std::string_view option);

// The current device of the accelerator that this libtorch is built for; nothing if none is usable.
std::optional<c10::Device> default_accelerator();

// An event that no device has been asked to record yet, for streams of that device. It goes back to
// a store when the last owner lets go: making one costs more than recording it. Any thread.
using SharedEvent = std::shared_ptr<c10::Event>;
SharedEvent take_event(c10::Device device);

}  // namespace stoker::detail
