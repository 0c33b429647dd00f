// SPDX-License-Identifier: BSD-3-Clause
#include "device/accelerator.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace stoker::detail {

namespace {

// Lives as long as the process: events may be let go while static objects are destroyed.
struct EventStore {
  std::mutex mutex;
  std::unordered_map<c10::Device, std::vector<c10::Event>> events;  // guarded by mutex

  static EventStore& instance() {
    static auto* store = new EventStore;
    return *store;
  }
  c10::Event take(c10::Device device);
  void put(c10::Device device, c10::Event event);
};

}  // namespace

int device_count(c10::DeviceType type) {
  if (!c10::impl::hasDeviceGuardImpl(type)) return 0;
  return c10::impl::VirtualGuardImpl(type).deviceCount();
}

c10::Device usable_device(c10::Device device, std::string_view option) {
  if (device.is_cpu()) return c10::kCPU;
  // Of those known everywhere, but without streams or memory.
  const bool is_real = device.type() != c10::kMeta;
  const int count = is_real ? device_count(device.type()) : 0;
  if (std::max<int>(device.index(), 0) >= count) {
    throw std::invalid_argument("stoker: " + std::string(option) + " is " + device.str() +
                                ", but libtorch finds " + std::to_string(count) +
                                " such devices here; give one that is there, or cpu");
  }
  if (device.has_index()) return device;
  return {device.type(), c10::impl::VirtualGuardImpl(device.type()).getDevice().index()};
}

std::optional<c10::Device> default_accelerator() {
  const auto type = at::getAccelerator(false);
  if (!type || device_count(*type) == 0) return std::nullopt;
  return c10::impl::VirtualGuardImpl(*type).getDevice();
}

c10::Event EventStore::take(c10::Device device) {
  const std::lock_guard lock(mutex);
  auto& free = events[device];
  if (free.empty()) return c10::Event(device.type());
  c10::Event event = std::move(free.back());
  free.pop_back();
  return event;
}

void EventStore::put(c10::Device device, c10::Event event) {
  const std::lock_guard lock(mutex);
  events[device].push_back(std::move(event));
}

SharedEvent take_event(c10::Device device) {
  EventStore& store = EventStore::instance();
  return {new c10::Event(store.take(device)), [&store, device](c10::Event* event) {
            store.put(device, std::move(*event));
            delete event;
          }};
}

}  // namespace stoker::detail
