// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sched.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "job.h"
#include "shared_slots.h"
#include "store_row.h"

namespace bench {

/// Plain forked processes that fill batch slots, without a loader: each takes the number of the
/// next batch from a shared counter, gets the samples and copies them into their rows. The first
/// batch they fill together, row by row. Nobody waits for anybody, and each worker has two slots
/// of its own, unless a consumer copies the batches: then they come in order, batch k in slot
/// k % slots, and each slot has two semaphores, "filled" and "free".
///
/// All memory that the processes share is `Shared` and the slots; both are mapped before the fork.
template <class Dataset>
class FillWorkers {
 public:
  FillWorkers(Dataset& dataset, const Job& job, std::vector<int64_t> order, int64_t width)
      : dataset_(dataset),
        job_(job),
        order_(std::move(order)),
        slots_(2 * job.workers + 1, job.batch_size, width),
        shared_(new (SharedSlots::map(sizeof(Shared))) Shared) {
    if (slots_.count() > kMaxSlots) throw std::invalid_argument("too many workers");
    sem_init(&shared_->first_batch_filled, 1, 0);
    for (int64_t slot = 0; slot < slots_.count(); ++slot) {
      sem_init(&shared_->filled[slot], 1, 0);
      sem_init(&shared_->free[slot], 1, slot == 0 ? 0 : 1);  // the first batch has slot 0
      shared_->batch_in[slot] = -1;
    }
  }
  ~FillWorkers() {
    stop();
    munmap(shared_, sizeof(Shared));
  }
  FillWorkers(const FillWorkers&) = delete;
  FillWorkers& operator=(const FillWorkers&) = delete;

  void fork_all() {
    for (int64_t worker = 0; worker < job_.workers; ++worker) {
      const pid_t pid = fork();
      if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
      if (pid == 0) work_and_exit(worker);
      pids_.push_back(pid);
    }
  }

  /// Lets each worker end its batch and waits for all of them. Returns whether all ended well.
  bool stop() {
    shared_->stop = true;
    for (int64_t slot = 0; slot < slots_.count(); ++slot) sem_post(&shared_->free[slot]);
    bool well = true;
    for (const pid_t pid : std::exchange(pids_, {})) {
      int status = 0;
      well = waitpid(pid, &status, 0) == pid && status == 0 && well;
    }
    return well;
  }

  const SharedSlots& slots() const { return slots_; }
  const std::vector<int64_t>& order() const { return order_; }
  int64_t epoch_batches() const {
    return (job_.epoch_samples + job_.batch_size - 1) / job_.batch_size;
  }
  int64_t first_sample(int64_t batch) const { return batch % epoch_batches() * job_.batch_size; }
  int64_t rows(int64_t batch) const {
    return std::min(job_.batch_size, job_.epoch_samples - first_sample(batch));
  }

  /// By a worker, or without workers by the only process there is.
  void fill(int64_t batch, int64_t slot) {
    for (int64_t row = 0; row < rows(batch); ++row) fill_row(batch, row, slot);
    shared_->batch_in[slot] = batch;
  }
  /// The batch that lies in a slot; -1 if none does.
  int64_t batch_in(int64_t slot) const { return shared_->batch_in[slot]; }

  void wait_for_first_batch() { wait(shared_->first_batch_filled); }
  std::chrono::steady_clock::time_point first_batch_time() const {
    return shared_->first_batch_time;
  }
  void wait_until_filled(int64_t batch) { wait(shared_->filled[batch % slots_.count()]); }
  void set_free(int64_t batch) { sem_post(&shared_->free[batch % slots_.count()]); }
  int64_t samples_filled() const { return shared_->samples; }
  int64_t label_sum() const { return shared_->label_sum; }
  /// Once stopped: all batches before this one are filled.
  int64_t end_batch() const { return shared_->next_batch; }

 private:
  static constexpr int64_t kMaxSlots = 257;

  struct Shared {
    std::atomic<int64_t> next_row{0};   // of the first batch
    std::atomic<int64_t> rows_done{0};  // of the first batch
    std::chrono::steady_clock::time_point first_batch_time;
    sem_t first_batch_filled;
    std::atomic<int64_t> next_batch{1};
    std::atomic<int64_t> samples{0};
    std::atomic<int64_t> label_sum{0};
    std::atomic<bool> stop{false};
    std::atomic<int64_t> batch_in[kMaxSlots];
    sem_t filled[kMaxSlots];
    sem_t free[kMaxSlots];
  };

  static void wait(sem_t& semaphore) {
    while (sem_wait(&semaphore) != 0 && errno == EINTR) {
    }
  }

  [[noreturn]] void work_and_exit(int64_t worker) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      work(worker);
      _exit(0);
    } catch (...) {
      _exit(1);
    }
  }

  void work(int64_t worker) {
    fill_first_batch();
    for (int64_t turn = 0; !shared_->stop; ++turn) {
      const int64_t batch = shared_->next_batch++;
      const int64_t own_slot = 1 + 2 * worker + turn % 2;
      const int64_t slot = job_.copies() ? batch % slots_.count() : own_slot;
      if (job_.copies()) wait_for_turn(batch, slot);
      if (job_.copies() && shared_->stop) return;
      fill(batch, slot);
      count(batch, slot);
      if (job_.copies()) sem_post(&shared_->filled[slot]);
    }
  }

  // A worker that was held up may find another waiting for the same slot, a round ahead of it.
  void wait_for_turn(int64_t batch, int64_t slot) {
    for (;;) {
      wait(shared_->free[slot]);
      if (shared_->batch_in[slot] == before(batch) || shared_->stop) return;
      sem_post(&shared_->free[slot]);
      sched_yield();
    }
  }
  // The batch that the slot holds before this one.
  int64_t before(int64_t batch) const { return std::max<int64_t>(batch - slots_.count(), -1); }

  void fill_first_batch() {
    const int64_t total = rows(0);
    for (int64_t row; (row = shared_->next_row++) < total;) {
      fill_row(0, row, 0);
      if (++shared_->rows_done != total) continue;
      shared_->first_batch_time = std::chrono::steady_clock::now();
      count(0, 0);
      shared_->batch_in[0] = 0;
      sem_post(&shared_->filled[0]);
      sem_post(&shared_->first_batch_filled);
    }
  }

  void fill_row(int64_t batch, int64_t row, int64_t slot) {
    const int64_t index = order_[static_cast<size_t>(first_sample(batch) + row)];
    const auto sample = dataset_.get(static_cast<size_t>(index));
    const auto bytes = static_cast<size_t>(slots_.width()) * sizeof(float);
    store_row(slots_.data(slot) + row * slots_.width(), sample.data.const_data_ptr(), bytes,
              job_.streaming_stores);
    slots_.labels(slot)[row] = *static_cast<const int64_t*>(sample.target.const_data_ptr());
  }

  void count(int64_t batch, int64_t slot) {
    int64_t sum = 0;
    for (int64_t row = 0; row < rows(batch); ++row) sum += slots_.labels(slot)[row];
    shared_->label_sum += sum;
    shared_->samples += rows(batch);
  }

  Dataset& dataset_;
  Job job_;
  std::vector<int64_t> order_;
  SharedSlots slots_;
  Shared* shared_;
  std::vector<pid_t> pids_;
};

}  // namespace bench
