// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// An accelerator without one, less kind than a real one: what is queued on its streams runs late,
// on threads; memory that was never written reads as 0xCD; memory that was freed is handed out
// again at once. A wait that is missing shows as a wrong value.
//
// It is libtorch's backend PrivateUse1, with two devices. Operators other than copies run on the
// CPU, and wait for it. In a program of its own: libtorch takes it for the accelerator from then
// on.

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "device/host_pin.h"

namespace stoker::fake {

constexpr int kDevices = 2;

// Once; before that the backend has no device. Loaders should fork before.
void install();
c10::Device device(int index = 0);

// What a program asked of the device so far.
struct Counters {
  std::atomic<int64_t> copies_to_device{0};
  std::atomic<int64_t> async_copies{0};   // of those: out of pinned memory, without waiting
  std::atomic<int64_t> staged_copies{0};  // .. out of other memory, read at the call
  std::atomic<int64_t> copies_on_device{0};
  std::atomic<int64_t> events_recorded{0};
  std::atomic<int64_t> events_made{0};
  std::atomic<int64_t> waits{0};  // of a stream for an event
  std::atomic<int64_t> syncs{0};  // of the program: for an event, a stream, a copy
  std::atomic<int64_t> registered{0};
  std::atomic<int64_t> unregistered{0};
  std::atomic<int64_t> stream_uses{0};  // of any stream function
};
Counters& counters();

// A stream that is held runs nothing until it is let go on.
void hold(c10::Stream stream);
void let_go(c10::Stream stream);
// Of everything queued from now on.
void set_delay(std::chrono::microseconds delay);
// Queues a kernel. It is given nothing, so it must know raw pointers.
void launch(c10::Stream stream, std::function<void()> kernel);
c10::Stream current_stream(int index = 0);
// A stream that nobody else has.
c10::Stream new_stream(int index = 0);
// The one that was asked for last, by the program or libtorch.
c10::Stream last_new_stream(int index = 0);
// Whether nothing is queued on it.
bool is_idle(c10::Stream stream);
// Waits for a stream, for all streams of all devices; not counted.
void finish(c10::Stream stream);
void finish_all();

// Whether there is pinned memory to be allocated; there is.
void refuse_pinned_memory(bool refuse);

// Page-locking, for replace_host_pin_api. Once `fail` is set, registering fails.
detail::HostPinApi host_pin_api();
void fail_registering(bool fail);
// Bytes that are registered now; and whether the last error was cleared.
uint64_t registered_bytes();
bool error_is_pending();
bool is_registered(const void* memory, uint64_t bytes);

}  // namespace stoker::fake
