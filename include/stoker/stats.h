// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace stoker {

/// Who waited for whom, seen from the thread that iterates.
struct WaitStats {
  int64_t batches = 0;
  int64_t samples = 0;
  /// The consumer waited in the loader for data (with `num_workers` = 0: fetched it).
  std::chrono::nanoseconds waited{0};
  /// The consumer was busy between one batch and asking for the next.
  std::chrono::nanoseconds computed{0};

  /// Share of the time spent waiting, 0 to 1; 0 before the first batch.
  double wait_share() const;

  WaitStats& operator+=(const WaitStats& other);
};

/// A sample that was skipped or replaced, see `on_error`.
struct BadSample {
  int64_t index = 0;  ///< in the dataset
  std::string error;  ///< what went wrong, the first time
};

/// How batches are page-locked, see `pin_memory`.
enum class Pinning : uint8_t {
  kNone,     ///< they are not
  kInPlace,  ///< where workers write them; no copy is made
  kCopied,   ///< copied to pinned memory of libtorch's
};

/// What `DataLoader::stats()` tells. Times are wall-clock times.
struct LoaderStats {
  int64_t epochs = 0;                       ///< epochs begun
  WaitStats epoch;                          ///< the current epoch, or the last one
  WaitStats total;                          ///< all epochs, the current one included
  std::chrono::nanoseconds first_batch{0};  ///< from the start of that epoch to its first batch
  int64_t restarts = 0;                     ///< workers replaced so far, see `max_restarts`
  int64_t errors = 0;                       ///< samples skipped or replaced so far, see `on_error`
  std::vector<BadSample> bad_samples{};     ///< .. the first 1000 different ones
  Pinning pinning = Pinning::kNone;         ///< of the batches handed out now
};

/// One line for the epoch and one for the total; no newline at the end.
std::ostream& operator<<(std::ostream& out, const LoaderStats& stats);

}  // namespace stoker
