// SPDX-License-Identifier: BSD-3-Clause
#include "loader/worker_watch.h"

#include <utility>

namespace stoker::detail {

namespace {

// Wraps around, as sequence numbers do.
bool is_before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

bool works_on(const WorkerRecord& worker, const InFlight& batch) {
  const uint64_t claim = worker.claim.load(std::memory_order_acquire);
  return claim != WorkerRecord::kIdle && static_cast<uint32_t>(claim) == batch.sequence;
}

// The first unfinished batch that this worker was working on, or that it alone could make.
std::optional<InFlight> lost_batch(Control& control, const WorkerRecord& worker,
                                   const std::deque<InFlight>& in_flight) {
  for (const InFlight& batch : in_flight) {
    const SlotHeader& header = control.slot(batch.slot).header();
    if (header.status.load(std::memory_order_acquire) != SlotStatus::kOpen) continue;
    const bool its_own = header.worker.load(std::memory_order_relaxed) == worker.id;
    if (its_own || works_on(worker, batch)) return batch;
  }
  return std::nullopt;
}

std::optional<size_t> current_index(Control& control, const WorkerRecord& worker,
                                    const InFlight& batch) {
  const uint32_t row = worker.progress.row.load(std::memory_order_relaxed);
  const Slot slot = control.slot(batch.slot);
  if (row == Progress::kAllRows) return slot.index(0);
  return row < slot.num_samples() ? std::optional(slot.index(row)) : std::nullopt;
}

struct Death {
  uint32_t worker;
  std::optional<InFlight> lost;  // nothing: it was idle, or its batch is over
};

// Of several deaths, the one that concerns the oldest batch.
std::optional<Death> oldest_death(Control& control, const std::deque<InFlight>& in_flight) {
  std::optional<Death> oldest;
  for (uint32_t id = 0; id < control.num_workers(); ++id) {
    const WorkerRecord& worker = control.worker(id);
    if (worker.state.load(std::memory_order_acquire) != WorkerState::kDead) continue;
    const auto lost = lost_batch(control, worker, in_flight);
    const bool is_older =
        !oldest || (lost && (!oldest->lost || is_before(lost->sequence, oldest->lost->sequence)));
    if (is_older) oldest = Death{id, lost};
  }
  return oldest;
}

bool any_living(Control& control) {
  for (uint32_t id = 0; id < control.num_workers(); ++id) {
    const WorkerState state = control.worker(id).state.load(std::memory_order_acquire);
    if (state == WorkerState::kNone || state == WorkerState::kRunning) return true;
  }
  return false;
}

// Where a worker is that has not come to its first sample.
std::optional<Busy::At> before_samples(const WorkerRecord& worker) {
  const WorkerState state = worker.state.load(std::memory_order_acquire);
  if (state == WorkerState::kNone) return Busy::At::kStart;
  if (state != WorkerState::kRunning) return std::nullopt;
  switch (worker.setup.load(std::memory_order_relaxed)) {
    case Setup::kInitFn:
      return Busy::At::kInitFn;
    case Setup::kOpenInWorker:
      return Busy::At::kOpenInWorker;
    case Setup::kDone:
      break;
  }
  return std::nullopt;
}

// Processes that are past their start, however they fared since.
uint32_t count_up(Control& control) {
  uint32_t up = control.supervised().load(std::memory_order_acquire);
  for (uint32_t id = 0; id < control.num_workers(); ++id) {
    if (control.worker(id).state.load(std::memory_order_acquire) != WorkerState::kNone) ++up;
  }
  return up;
}

// One that is forked, and not up. Of a program with much memory the fork itself takes long.
std::optional<uint32_t> starting_worker(Control& control) {
  for (uint32_t id = 0; id < control.num_workers(); ++id) {
    const WorkerRecord& worker = control.worker(id);
    const bool up = worker.state.load(std::memory_order_acquire) != WorkerState::kNone;
    if (!up && worker.pid.load(std::memory_order_relaxed) > 0) return id;
  }
  return std::nullopt;
}

bool is_starting(Control& control) {
  return control.supervised().load(std::memory_order_acquire) == 0 || starting_worker(control);
}

std::optional<WorkerError> find_bad_start(Control& control) {
  for (uint32_t id = 0; id < control.num_workers(); ++id) {
    const WorkerRecord& worker = control.worker(id);
    const WorkerState state = worker.state.load(std::memory_order_acquire);
    if (state == WorkerState::kInitFailed) return report_init_failure(id, worker);
    if (state == WorkerState::kNoFork) return report_no_fork(id, worker);
  }
  return std::nullopt;
}

}  // namespace

std::optional<WorkerError> find_trouble(Control& control, const std::deque<InFlight>& in_flight,
                                        bool in_order) {
  if (control.troubles().load(std::memory_order_acquire) == 0) return std::nullopt;
  if (auto error = find_bad_start(control)) return error;
  const auto death = oldest_death(control, in_flight);
  if (!death) return std::nullopt;
  const bool is_later = death->lost && is_before(in_flight.front().sequence, death->lost->sequence);
  if (is_later && in_order && any_living(control)) return std::nullopt;
  const WorkerRecord& worker = control.worker(death->worker);
  const auto index = death->lost ? current_index(control, worker, *death->lost) : std::nullopt;
  return report_death(death->worker, worker, index);
}

std::vector<Busy> busy_workers(Control& control, const InFlight& batch) {
  std::vector<Busy> busy;
  for (uint32_t id = 0; id < control.num_workers(); ++id) {
    const WorkerRecord& worker = control.worker(id);
    const int64_t pid = worker.pid.load();
    if (const auto at = before_samples(worker)) {
      busy.push_back({id, pid, 0, *at});
    } else if (works_on(worker, batch)) {
      const auto index = current_index(control, worker, batch);
      if (index) busy.push_back({id, pid, *index});
    }
  }
  return busy;
}

std::chrono::nanoseconds& start_limit() {
  static std::chrono::nanoseconds limit = std::chrono::seconds(10);
  return limit;
}

bool StartWatch::is_stuck(Control& control, std::chrono::nanoseconds waited) {
  const uint32_t up = count_up(control);
  if (up == control.num_workers() + 1) tried_ = 0;
  if (up != up_ || !is_starting(control)) waited_ = {};
  up_ = up;
  if (!is_starting(control)) return false;
  waited_ += waited;
  return waited_ >= limit_;
}

std::optional<WorkerError> StartWatch::give_up(Control& control, int64_t supervisor) {
  waited_ = {};
  if (++tried_ < tries_) return std::nullopt;
  const int tried = std::exchange(tried_, 0);
  const double seconds = std::chrono::duration<double>(limit_).count();
  const auto worker = starting_worker(control);
  const int64_t pid = worker ? control.worker(*worker).pid.load() : supervisor;
  return report_not_started(worker, pid, seconds, tried);
}

}  // namespace stoker::detail
