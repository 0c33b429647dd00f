// SPDX-License-Identifier: BSD-3-Clause
#include "memory/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace stoker::detail {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Not FUTEX_PRIVATE_FLAG: the word is shared between processes. Errors (EAGAIN, EINTR, ETIMEDOUT)
// all mean: look again.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(seconds.count());
  timeout.tv_nsec = static_cast<long>((at_most - seconds).count());
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0);
}

}  // namespace stoker::detail
