// SPDX-License-Identifier: BSD-3-Clause
#include "worker/worker_loop.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "memory/failure.h"
#include "memory/futex.h"
#include "worker/worker_context.h"

namespace stoker::detail {

namespace {

using Clock = std::chrono::steady_clock;

// The kernel keeps 15 characters.
void set_process_name(uint32_t id) {
  std::string name = "stoker worker " + std::to_string(id);
  if (name.size() > 15) name = "stoker wrk " + std::to_string(id);
  prctl(PR_SET_NAME, name.c_str(), 0, 0, 0);
}

[[noreturn]] void leave(int status) {
  std::cout.flush();
  std::fflush(stdout);
  _exit(status);
}

template <size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  const size_t bytes = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), bytes);
  to[bytes] = '\0';
}

class Worker {
 public:
  Worker(const WorkerJob& job, uint32_t id)
      : job_(job),
        control_(*job.control),
        id_(id),
        me_(control_.worker(id)),
        filler_(*job.fetcher, id, control_.num_workers(), job.fill) {}

  bool init() {
    try {
      if (job_.init_fn) {
        const WorkerInfoScope told(filler_.info(0));
        job_.init_fn(id_);
      }
      me_.setup.store(Setup::kOpenInWorker, std::memory_order_relaxed);
      filler_.open();
      me_.setup.store(Setup::kDone, std::memory_order_relaxed);
      return true;
    } catch (...) {
      const Failure failure = describe_exception(std::current_exception());
      copy_text(me_.type_name, failure.type_name);
      copy_text(me_.text, failure.text);
    }
    me_.state.store(WorkerState::kInitFailed, std::memory_order_release);
    control_.troubles().fetch_add(1, std::memory_order_release);
    control_.raise_event();
    futex_wake(control_.events_word(), 1);
    return false;
  }

  // Rows that were claimed, but are nobody's: the one that this worker replaces had claimed them.
  // Or it was about to complete a batch.
  void take_over() {
    control_.for_each_open([this](const Claim& batch) {
      const Slot slot = control_.slot(batch.slot);
      const uint32_t worker = slot.origin().worker;
      if (worker != Origin::kAnyWorker && worker != id_) return;
      me_.work_on(batch.slot, batch.sequence);
      const Hand me = filler_.hand(slot, batch.sequence);
      const uint32_t finished = filler_.fill(slot, batch.sequence, batch.rows, me_.progress);
      const bool last = finished > 0 ? slot.finish(me, finished) : slot.take_completion(me);
      if (last) complete(batch);
    });
  }

  void loop(bool replacement) {
    filler_.enter();
    if (replacement) take_over();
    while (control_.stop().load(std::memory_order_acquire) == 0) {
      const uint32_t seen = control_.published();
      const auto claim =
          control_.claim(me_, [this](uint32_t rest, uint32_t) { return rows_at_once(rest); });
      if (claim) {
        work(*claim);
      } else {
        sleep(seen);
      }
    }
  }

  void close() {
    me_.state.store(WorkerState::kClosing, std::memory_order_release);
    close_dataset(*job_.fetcher, filler_.info(0));
  }

 private:
  // Enough rows to make the claim itself cheap, few enough that the others get their share.
  uint32_t rows_at_once(uint32_t rest) const {
    if (job_.fetcher->whole_batches() || job_.fetcher->is_stream()) return rest;
    constexpr double kClaimNanoseconds = 100'000;
    if (sample_ns_ <= 0) return 1;
    return static_cast<uint32_t>(std::clamp<double>(kClaimNanoseconds / sample_ns_, 1, rest));
  }

  void work(const Claim& claim) {
    const Slot slot = control_.slot(claim.slot);
    const bool rest = claim.rows.first + claim.rows.count < slot.num_claimable();
    // Each worker that finds more than it takes wakes the next one: main need not wake them all.
    if (rest && control_.has_sleepers()) futex_wake(control_.published_word(), 1);
    const auto start = Clock::now();
    const uint32_t finished = filler_.fill(slot, claim.sequence, claim.rows, me_.progress);
    if (finished == 0) return;  // a replacement was first
    learn(Clock::now() - start, claim.rows.count);
    if (slot.finish(filler_.hand(slot, claim.sequence), finished)) complete(claim);
  }

  void complete(const Claim& batch) {
    const Slot slot = control_.slot(batch.slot);
    me_.progress.row.store(Progress::kNoRow, std::memory_order_relaxed);
    const SlotStatus status = filler_.complete(slot);
    if (control_.complete(slot, batch.sequence, status)) futex_wake(control_.events_word(), 1);
  }

  void learn(std::chrono::nanoseconds spent, uint32_t rows) {
    const double ns = static_cast<double>(spent.count()) / rows;
    sample_ns_ = sample_ns_ <= 0 ? ns : 0.75 * sample_ns_ + 0.25 * ns;
  }

  // PR_SET_PDEATHSIG ends a worker whose supervisor is gone; the deadline is for lost wake-ups.
  void sleep(uint32_t seen) {
    control_.begin_sleep();
    if (control_.published() == seen && control_.stop().load() == 0) {
      futex_wait(control_.published_word(), seen, std::chrono::seconds(1));
    }
    control_.end_sleep();
  }

  const WorkerJob& job_;
  Control& control_;
  uint32_t id_;
  WorkerRecord& me_;
  Filler filler_;
  double sample_ns_ = 0;
};

}  // namespace

void close_dataset(Fetcher& fetcher, const WorkerInfo& info) noexcept {
  try {
    const WorkerInfoScope told(info);
    fetcher.close_in_worker();
  } catch (...) {
    const Failure failure = describe_exception(std::current_exception());
    std::fprintf(stderr, "stoker: close_in_worker threw %s: %s\n", failure.type_name.c_str(),
                 failure.text.c_str());
  }
}

void run_worker(const WorkerJob& job, uint32_t id, bool replacement) noexcept {
  set_process_name(id);
  Worker worker(job, id);
  if (!worker.init()) leave(1);
  worker.loop(replacement);
  worker.close();
  leave(0);
}

}  // namespace stoker::detail
