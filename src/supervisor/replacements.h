// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which workers that died are replaced, and which samples are to blame.
//
// Works on memory it is handed. Process safety: supervisor only.

#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

#include "memory/control.h"

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
  // What a worker was at: of which epoch, the position there of a sample or of a batch's first one,
  // and whether it was all of the batch. Batches of an epoch that was left may still be open.
  using Deed = std::tuple<int64_t, uint64_t, uint32_t>;
  Deed deed_of(const WorkerRecord& worker);
  bool has_ended_two(const WorkerRecord& worker);
  bool condemn(WorkerRecord& worker);
  std::pair<Slot, Hand> batch_of(const WorkerRecord& worker);

  Control& control_;
  ReplacementLimits limits_;
  uint32_t epoch_ = 0;
  int64_t restarts_ = 0;    // in that epoch
  std::set<Deed> killers_;  // .. that ended one worker
};

}  // namespace stoker::detail
