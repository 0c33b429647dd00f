// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <stoker/detail/core.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "arrivals.h"
#include "available_memory.h"
#include "batch_source.h"
#include "checked_options.h"
#include "collate.h"
#include "control.h"
#include "failure.h"
#include "fill.h"
#include "futex.h"
#include "hand_out.h"
#include "slot_pool.h"
#include "supervisor.h"
#include "worker_loop.h"
#include "worker_report.h"
#include "worker_watch.h"

namespace stoker::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLookAgain = std::chrono::milliseconds(100);

InFlightLimit in_flight_limit(const DataLoaderOptions& options) {
  constexpr uint32_t kManyTinyBatches = 64;
  const int64_t batches = options.prefetch_factor.value_or(2) * options.num_workers;
  const auto usual = static_cast<uint32_t>(std::max<int64_t>(batches, 1));
  return {usual, options.prefetch_factor ? usual : std::max(usual, kManyTinyBatches)};
}

bool can_pin(bool wanted) {
  if (!wanted) return false;
  if (at::getAccelerator(false)) return true;
  TORCH_WARN_ONCE(
      "stoker: pin_memory is true, but no accelerator was found; memory will not be pinned");
  return false;
}

}  // namespace

// In the order of an epoch's life. All of it runs in the main process.
class LoaderCore::Impl {
 public:
  Impl(std::unique_ptr<Fetcher> fetcher, DataLoaderOptions options)
      : options_(checked(std::move(options))),
        fetcher_(std::move(fetcher)),
        source_(options_, [this] { return fetcher_->size(); }),
        pool_(std::make_shared<SlotPool>(
            options_.num_workers, in_flight_limit(options_),
            options_.shared_memory_limit ? *options_.shared_memory_limit : available_memory() / 2)),
        job_{&pool_->control(), fetcher_.get(), options_.worker_init_fn,
             options_.sample_timeout.count() > 0},
        arrivals_(pool_->control(), options_.in_order, in_flight_limit(options_)) {
    if (options_.num_workers == 0) {
      filler_.emplace(*fetcher_, std::nullopt, 0);
    } else if (options_.persistent_workers) {
      start_workers();
    }
    pin_ = can_pin(options_.pin_memory);
  }

  uint64_t begin_epoch() {
    if (getpid() != owner_) {
      throw std::logic_error("stoker: a loader can only be used in the process that made it");
    }
    end_epoch();
    ++epoch_;
    ++control().epochs();
    ++stats_.epochs;
    stats_.epoch = {};
    began_ = Clock::now();
    error_ = nullptr;
    if (options_.num_workers > 0 && !workers_are_well()) start_workers();
    epoch_seed_ = source_.begin_epoch();
    position_ = 0;
    exhausted_ = over_ = false;
    if (options_.num_workers > 0) publish_more();
    return epoch_;
  }

  bool next(uint64_t epoch, BatchLeaves& batch) {
    if (epoch != epoch_) {
      throw std::logic_error("stoker: this iterator's epoch was ended by a later begin()");
    }
    const auto start = Clock::now();
    const WaitStats before = stats_.epoch;
    if (before.batches > 0 && !over_) stats_.epoch.computed += start - returned_;
    const bool more = options_.num_workers == 0 ? next_here(batch) : next_from_workers(batch);
    returned_ = Clock::now();
    if (more) count(returned_ - start);
    stats_.total += {stats_.epoch.batches - before.batches, stats_.epoch.samples - before.samples,
                     stats_.epoch.waited - before.waited, stats_.epoch.computed - before.computed};
    return more;
  }

  void abandon(uint64_t epoch) noexcept {
    if (epoch != epoch_ || getpid() != owner_) return;
    end_epoch();
  }

  void end_with(uint64_t epoch, const std::exception_ptr& error) {
    if (epoch != epoch_) return;
    end_epoch();
    error_ = error;
  }

  const DataLoaderOptions& options() const { return options_; }
  const LoaderStats& stats() {
    stats_.restarts = control().restarts().load(std::memory_order_relaxed);
    return stats_;
  }
  const BatchSource& source() const { return source_; }

 private:
  Control& control() { return pool_->control(); }
  Slot slot(uint32_t id) { return control().slot(id); }
  const std::deque<InFlight>& in_flight() const { return arrivals_.in_flight(); }

  // --- workers

  bool workers_are_well() {
    return supervisor_ && supervisor_->alive() && control().troubles().load() == 0;
  }

  void start_workers() {
    supervisor_.reset();
    reclaim_all();
    control().reset();
    supervisor_.emplace(
        control(), SupervisorLimits{options_.max_restarts, options_.sample_timeout},
        [this](uint32_t id, bool replacement) { run_worker(job_, id, replacement); });
  }

  // No worker lives: nobody writes to any slot.
  void reclaim_all() {
    for (const InFlight& one : in_flight()) draining_.push_back(one.slot);
    arrivals_.clear();
    for (const uint32_t id : draining_) {
      slot(id).header().status.store(SlotStatus::kReady, std::memory_order_relaxed);
      pool_->give_back(id);
    }
    draining_.clear();
  }

  // --- publishing

  void publish_more() {
    reclaim_drained();
    while (!exhausted_ && arrivals_.has_room()) {
      if (!draw_batch()) return;
      const auto id = pool_->acquire(pending_->size());
      if (!id) return;
      open(*id);
      arrivals_.add({control().published(), *id});
      control().publish(*id);
      if (control().has_sleepers()) futex_wake(control().published_word(), 1);
    }
  }

  // True if a batch is pending then. What the sampler throws is told when it is its turn, after
  // the batches before.
  bool draw_batch() {
    if (pending_) return true;
    try {
      pending_ = source_.next();
    } catch (...) {
      source_error_ = std::current_exception();
    }
    exhausted_ = !pending_;
    return !exhausted_;
  }

  void open(uint32_t id) {
    slot(id).publish(*pending_, control().published(), epoch_seed_, position_);
    position_ += pending_->size();
    pending_.reset();
  }

  void reclaim_drained() {
    std::erase_if(draining_, [this](uint32_t id) {
      if (slot(id).header().status.load(std::memory_order_acquire) == SlotStatus::kOpen) {
        return false;
      }
      pool_->give_back(id);
      return true;
    });
  }

  // Batches of an epoch that was left may hold the memory that this one's first batch needs.
  void wait_for_drained() {
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(
                           options_.timeout.count() > 0 ? options_.timeout : kLongest);
    while (in_flight().empty() && pending_ && !draining_.empty() && Clock::now() < deadline) {
      if (!workers_are_well()) start_workers();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      publish_more();
    }
  }

  // --- the next batch

  bool next_here(BatchLeaves& batch) {
    if (over_ || !draw_batch()) return end_reached();
    const auto id = pool_->acquire(pending_->size());
    if (!id) fail(out_of_memory());
    open(*id);
    control().publish(*id);
    const SlotStatus status = fill_here(*id);
    if (status == SlotStatus::kReady) {
      deliver(*id, batch);
      return true;
    }
    const std::exception_ptr told = failure_of(slot(*id), false);
    pool_->give_back(*id);
    const auto own = filler_->take_error();
    fail(own ? own : told);
  }

  SlotStatus fill_here(uint32_t id) {
    const Slot s = slot(id);
    const auto n = static_cast<uint32_t>(s.num_samples());
    Progress progress;
    filler_->enter();
    s.finish(filler_->hand(s, s.generation()), filler_->fill(s, s.generation(), {0, n}, progress));
    filler_->leave();
    const SlotStatus status = collate(s, std::nullopt);
    s.header().status.store(status, std::memory_order_relaxed);
    return status;
  }

  bool next_from_workers(BatchLeaves& batch) {
    if (over_) return end_reached();
    publish_more();
    wait_for_drained();
    if (in_flight().empty()) {
      if (pending_) fail(out_of_memory());
      return end_reached();
    }
    const uint32_t id = wait_for_batch();
    if (slot(id).header().status.load(std::memory_order_relaxed) != SlotStatus::kReady) {
      const std::exception_ptr told = failure_of(slot(id), true);
      pool_->give_back(id);
      fail(told);
    }
    deliver(id, batch);
    publish_more();
    return true;
  }

  // The end, clean or not: an error stays one.
  bool end_reached() {
    if (!over_ && source_error_) fail(std::exchange(source_error_, nullptr));
    if (error_) std::rethrow_exception(error_);
    if (!over_) end_epoch();
    return false;
  }

  [[noreturn]] void fail(const std::exception_ptr& error) {
    end_epoch();
    error_ = error;
    std::rethrow_exception(error);
  }

  std::exception_ptr out_of_memory() {
    const SlotPool::Memory memory = pool_->memory();
    return std::make_exception_ptr(report_no_memory(memory.kept, memory.expected, memory.limit));
  }

  // Takes the batch out of those in flight.
  uint32_t wait_for_batch() {
    const bool limited = options_.timeout.count() > 0;
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                             std::min(options_.timeout, kLongest));
    for (;;) {
      if (const auto id = arrivals_.take(Clock::now())) return *id;
      look_for_trouble();
      const auto left = limited ? deadline - Clock::now() : Clock::duration(kLookAgain);
      if (left.count() <= 0) {
        throw report_timeout(options_.timeout.count(),
                             busy_workers(control(), in_flight().front()));
      }
      if (!arrivals_.sleep(std::min<Clock::duration>(left, kLookAgain))) look_for_supervisor();
    }
  }

  // Throws if the batch waited for cannot come any more.
  void look_for_trouble() {
    if (auto error = find_trouble(control(), in_flight(), options_.in_order)) {
      fail(std::make_exception_ptr(*std::move(error)));
    }
  }

  // It cannot tell of its own end.
  void look_for_supervisor() {
    if (supervisor_->alive()) return;
    fail(std::make_exception_ptr(report_lost_supervisor(supervisor_->pid())));
  }

  // --- handing out, and the end

  void deliver(uint32_t id, BatchLeaves& batch) try {
    samples_ = static_cast<int64_t>(slot(id).num_samples());
    hand_out(pool_, id, batch);
    if (!pin_) return;
    for (auto& leaf : batch.leaves) {
      if (leaf.tensor.defined()) leaf.tensor = leaf.tensor.pin_memory();
    }
  } catch (...) {
    fail(std::current_exception());
  }

  void count(Clock::duration waited) {
    if (stats_.epoch.batches == 0) stats_.first_batch = returned_ - began_;
    ++stats_.epoch.batches;
    stats_.epoch.samples += samples_;
    stats_.epoch.waited += waited;
  }

  // What is in flight is skipped, not waited for.
  void end_epoch() {
    for (const InFlight& one : in_flight()) {
      const Slot s = slot(one.slot);
      s.header().cancelled.store(1, std::memory_order_relaxed);
      const Hand me = s.main(one.sequence);
      const uint32_t rest = s.skip_rest(me, pool_->num_samples(one.slot));
      if (rest > 0 && s.finish(me, rest)) {
        s.header().status.store(SlotStatus::kReady, std::memory_order_relaxed);
      }
      draining_.push_back(one.slot);
    }
    arrivals_.clear();
    pending_.reset();
    source_error_ = nullptr;
    exhausted_ = true;
    over_ = true;
    if (supervisor_ && !options_.persistent_workers) {
      supervisor_.reset();
      reclaim_all();
    }
  }

  static constexpr std::chrono::duration<double> kLongest = std::chrono::hours(24 * 365);

  const pid_t owner_ = getpid();
  DataLoaderOptions options_;
  std::unique_ptr<Fetcher> fetcher_;
  BatchSource source_;
  std::shared_ptr<SlotPool> pool_;
  WorkerJob job_;
  Arrivals arrivals_;
  std::optional<Supervisor> supervisor_;
  std::optional<Filler> filler_;  // with num_workers = 0
  bool pin_ = false;

  uint64_t epoch_ = 0;
  uint64_t epoch_seed_ = 0;
  uint64_t position_ = 0;                        // of the next sample to be published
  std::optional<std::vector<int64_t>> pending_;  // drawn, but not published yet
  std::vector<uint32_t> draining_;               // cancelled; workers may still write to them
  bool exhausted_ = true;                        // the sampler has no more for this epoch
  bool over_ = true;
  std::exception_ptr error_;         // why this epoch ended early
  std::exception_ptr source_error_;  // what the sampler threw

  LoaderStats stats_;
  int64_t samples_ = 0;  // of the batch delivered last
  Clock::time_point began_;
  Clock::time_point returned_;
};

LoaderCore::LoaderCore(std::unique_ptr<Fetcher> fetcher, DataLoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(fetcher), std::move(options))) {}
LoaderCore::~LoaderCore() = default;

uint64_t LoaderCore::begin_epoch() { return impl_->begin_epoch(); }
bool LoaderCore::next(uint64_t epoch, BatchLeaves& batch) { return impl_->next(epoch, batch); }
void LoaderCore::end_with(uint64_t n, std::exception_ptr error) { impl_->end_with(n, error); }
void LoaderCore::abandon(uint64_t epoch) noexcept { impl_->abandon(epoch); }
std::optional<int64_t> LoaderCore::size() const { return impl_->source().batches_per_epoch(); }
const DataLoaderOptions& LoaderCore::options() const { return impl_->options(); }
const LoaderStats& LoaderCore::stats() const { return impl_->stats(); }

}  // namespace stoker::detail
