// SPDX-License-Identifier: BSD-3-Clause
#include "device/pinned_memory.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>

namespace stoker::detail {

namespace {

constexpr unsigned kPortable = 1;  // for all devices; the same in CUDA and ROCm

const uintptr_t kPage = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));

std::byte* page_down(std::byte* at) { return at - reinterpret_cast<uintptr_t>(at) % kPage; }
std::byte* page_up(std::byte* at) { return page_down(at + kPage - 1); }

}  // namespace

PinnedMemory::PinnedMemory(const HostPinApi& api, c10::Device device)
    : api_(api), device_(device), owner_(getpid()) {}

PinnedMemory::~PinnedMemory() {
  if (getpid() != owner_) return;
  while (!stretches_.empty()) unlock(stretches_.begin());
}

bool PinnedMemory::pin(std::byte* begin, uint64_t bytes, uint64_t most) {
  std::byte* from = page_down(begin);
  std::byte* to = page_up(begin + bytes);
  if (from == to) return works_;
  auto stretch = stretches_.upper_bound(from);
  if (stretch != stretches_.begin()) --stretch;
  bool grows = false;
  while (stretch != stretches_.end() && stretch->first < to) {
    std::byte* end = stretch->first + stretch->second;
    if (stretch->first <= from && to <= end) return true;
    if (end <= from) {
      ++stretch;
      continue;
    }
    from = std::min(from, stretch->first);
    to = std::max(to, end);
    grows = true;
    unlock(stretch++);
  }
  if (!works_ || getpid() != owner_) return false;
  const auto wanted = static_cast<uint64_t>(to - from);
  uint64_t spare = grows ? std::min(wanted / 4, most - std::min(most, wanted)) : 0;
  if (stretch != stretches_.end()) {
    spare = std::min(spare, static_cast<uint64_t>(stretch->first - to));
  }
  return lock(from, wanted + spare / kPage * kPage);
}

void PinnedMemory::unpin(const std::byte* begin, uint64_t bytes) {
  if (getpid() != owner_) return;
  auto stretch = stretches_.lower_bound(const_cast<std::byte*>(begin));
  while (stretch != stretches_.end() && stretch->first < begin + bytes) unlock(stretch++);
}

uint64_t PinnedMemory::pinned(const std::byte* begin, uint64_t bytes) const {
  uint64_t sum = 0;
  for (auto stretch = stretches_.lower_bound(const_cast<std::byte*>(begin));
       stretch != stretches_.end() && stretch->first < begin + bytes; ++stretch) {
    sum += stretch->second;
  }
  return sum;
}

bool PinnedMemory::lock(std::byte* begin, uint64_t bytes) {
  const c10::DeviceGuard guard(device_);
  const int error = api_.host_register(begin, bytes, kPortable);
  if (error == 0) {
    stretches_.emplace(begin, bytes);
    return true;
  }
  api_.get_last_error();
  works_ = false;
  TORCH_WARN("stoker: pin_memory is true, but ", bytes,
             " bytes could not be page-locked: ", api_.text_of(error),
             "; further batches will not be pinned");
  return false;
}

// At the end of a program the runtime may be gone already; then there is nothing left to unlock.
void PinnedMemory::unlock(Stretches::iterator stretch) {
  try {
    const c10::DeviceGuard guard(device_);
    if (api_.host_unregister(stretch->first) != 0) api_.get_last_error();
  } catch (...) {  // the device is lost, and its locks with it
  }
  stretches_.erase(stretch);
}

}  // namespace stoker::detail
