// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Sleeping on a word of shared memory, across processes (`std::atomic::wait` stays within one).

#include <atomic>
#include <chrono>
#include <cstdint>

namespace stoker::detail {

// Sleeps while the word is `seen`, at most that long; may return early.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds at_most);

// Wakes up to `count` sleepers.
void futex_wake(std::atomic<uint32_t>& word, int count);

}  // namespace stoker::detail
