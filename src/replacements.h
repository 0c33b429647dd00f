// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which workers that died are replaced, and which samples are to blame.
//
// Works on memory it is handed. Process safety: supervisor only.

#include <cstdint>
#include <set>
#include <utility>

#include "control.h"

namespace stoker::detail {

struct ReplacementLimits {
  int64_t max_restarts = 0;    // in one epoch
  bool whole_batches = false;  // samples are fetched a whole batch at a time
  bool condemns = false;       // samples that end two workers are left to on_error
};

class Replacements {
 public:
  Replacements(Control& control, ReplacementLimits limits) : control_(control), limits_(limits) {}

  // Of a worker that died, and is not disowned yet: whether it is to be replaced. If not, its
  // record tells why. What ended two workers is not tried again: that is told, or left to on_error.
  bool allow(WorkerRecord& worker);

 private:
  // What a worker was at: a sample, by its position in the epoch, or all of a batch.
  using Deed = std::pair<uint64_t, uint32_t>;
  Deed deed_of(const WorkerRecord& worker);
  bool has_ended_two(const WorkerRecord& worker);
  bool condemn(WorkerRecord& worker);
  std::pair<Slot, Hand> batch_of(const WorkerRecord& worker);

  Control& control_;
  ReplacementLimits limits_;
  uint32_t epoch_ = 0;
  int64_t restarts_ = 0;                             // in that epoch
  std::set<Deed> killers_;  // .. that ended one worker
};

}  // namespace stoker::detail
