// SPDX-License-Identifier: BSD-3-Clause
#include <stoker/detail/core.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "device/device_stage.h"
#include "device/pinning.h"
#include "loader/bad_samples.h"
#include "loader/batch_source.h"
#include "loader/checked_options.h"
#include "loader/epoch_plan.h"
#include "loader/hand_out.h"
#include "loader/publisher.h"
#include "loader/slot_pool.h"
#include "loader/stream_source.h"
#include "loader/worker_report.h"
#include "loader/worker_watch.h"
#include "loader/workers.h"
#include "memory/control.h"
#include "memory/failure.h"
#include "supervisor/available_memory.h"
#include "worker/fill.h"

namespace stoker::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLookAgain = std::chrono::milliseconds(100);

}  // namespace

// In the order of an epoch's life. All of it runs in the main process.
class LoaderCore::Impl {
 public:
  Impl(std::unique_ptr<Fetcher> fetcher, DataLoaderOptions options)
      : options_(checked(std::move(options))),
        fetcher_(std::move(fetcher)),
        plan_(options_, make_source()),
        in_flight_limit_(in_flight_limit(options_)),
        pool_(std::make_shared<SlotPool>(options_.num_workers, in_flight_limit_,
                                         memory_limit(options_))),
        publisher_(plan_, pool_, options_, in_flight_limit_, fetcher_->whole_batches()),
        workers_(
            {&pool_->control(), fetcher_.get(), options_.worker_init_fn, fill_options(options_)},
            {{options_.max_restarts, fetcher_->whole_batches(),
              options_.on_error != OnError::kRaise},
             options_.sample_timeout}) {
    if (options_.num_workers == 0) {
      filler_.emplace(*fetcher_, std::nullopt, 0, fill_options(options_));
    } else if (options_.persistent_workers) {
      start_workers();
    }
    use_accelerator(*pool_, options_);
    if (options_.device) stage_.emplace(*options_.device);
  }

  ~Impl() {
    if (opened_ && getpid() == owner_) close_dataset(*fetcher_, filler_->info(0));
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  uint64_t begin_epoch() {
    check_process();
    // Nobody has an iterator of this epoch to ask once more: this one is.
    if (std::exchange(first_timed_out_, false) && !over_) return epoch_;
    leave_epoch();
    ++epoch_;
    ++control().epochs();
    ++stats_.epochs;
    stats_.epoch = {};
    began_ = Clock::now();
    error_ = nullptr;
    if (filler_) filler_->open();
    opened_ = filler_.has_value();
    if (options_.num_workers > 0 && !workers_.are_well()) start_workers();
    publisher_.begin();
    over_ = pulled_ = false;
    if (options_.num_workers > 0) publish_more();
    return epoch_;
  }

  bool next(uint64_t epoch, BatchLeaves& batch) {
    check_process();
    if (epoch != epoch_) {
      throw std::logic_error("stoker: this iterator's epoch was ended by a later begin()");
    }
    const auto start = Clock::now();
    const WaitStats before = stats_.epoch;
    const bool done = over_ && (!stage_ || stage_->empty());
    if (before.batches > 0 && !done) stats_.epoch.computed += start - returned_;
    const auto pull = [this](BatchLeaves& on_host) { return next_on_host(on_host); };
    const bool more = stage_ ? stage_->next(pull, batch) : pull(batch);
    if (more) {
      plan_.source().deliver(batch.delivery);
      bad_samples_.count(batch.delivery.bad_samples, stats_);
    } else {
      plan_.finish();
      bad_samples_.count(publisher_.take_left_out(UINT64_MAX), stats_);
    }
    returned_ = Clock::now();
    if (more) count(returned_ - start, static_cast<int64_t>(batch.delivery.samples));
    stats_.total += {stats_.epoch.batches - before.batches, stats_.epoch.samples - before.samples,
                     stats_.epoch.waited - before.waited, stats_.epoch.computed - before.computed};
    return more;
  }

  void abandon(uint64_t epoch) noexcept {
    if (epoch != epoch_ || getpid() != owner_) return;
    leave_epoch();
  }

  void end_with(uint64_t epoch, const std::exception_ptr& error) {
    if (epoch != epoch_) return;
    leave_epoch();
    error_ = error;
  }

  const DataLoaderOptions& options() const { return options_; }
  const LoaderStats& stats() {
    stats_.restarts = control().restarts().load(std::memory_order_relaxed);
    stats_.pinning = pool_->pinning();
    return stats_;
  }
  const EpochPlan& plan() const { return plan_; }
  void load_state_dict(const StateDict& state) {
    check_process();
    plan_.check(state);
    leave_epoch();
    plan_.load_state_dict(state);
  }

 private:
  std::unique_ptr<TaskSource> make_source() {
    check_for_dataset(options_, *fetcher_);
    const auto size = [this] { return fetcher_->size(); };
    if (fetcher_->is_stream()) return std::make_unique<StreamSource>(options_, size);
    return std::make_unique<BatchSource>(options_, size);
  }

  Control& control() { return pool_->control(); }
  Slot slot(uint32_t id) { return control().slot(id); }
  const std::deque<InFlight>& in_flight() const { return publisher_.in_flight(); }

  void check_process() const {
    if (getpid() == owner_) return;
    throw std::logic_error("stoker: a loader can only be used in the process that made it");
  }

  void start_workers() {
    workers_.end();
    publisher_.reclaim_all();
    workers_.start();
  }

  // Batches of an epoch that was left may hold the memory that this one's first batch needs.
  void wait_for_drained() {
    const auto deadline = this->deadline();
    while (in_flight().empty() && publisher_.is_pending() && publisher_.is_draining() &&
           Clock::now() < deadline) {
      if (!workers_.are_well()) start_workers();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      publish_more();
    }
  }

  // Of a wait that begins now.
  Clock::time_point deadline() const {
    const auto wait = options_.timeout.count() > 0 ? options_.timeout : kLongest;
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::min(wait, kLongest));
  }

  void publish_more() try { publisher_.publish_more(); } catch (...) {
    fail(std::current_exception());
  }

  bool next_on_host(BatchLeaves& batch) {
    while (!over_) {
      const auto id = options_.num_workers == 0 ? make_here() : wait_for_workers();
      if (!id) return end_reached(batch);
      if (!deliver(*id, batch)) continue;
      pulled_ = true;
      if (options_.num_workers > 0) publish_more();
      return true;
    }
    if (error_) std::rethrow_exception(error_);
    return false;
  }

  // False for a batch of which samples are left out, or that has none. From hand_out on the slot is
  // the batch's.
  bool deliver(uint32_t id, BatchLeaves& batch) {
    bool is_ours = true;
    try {
      const bool left_out = status_of(id) == SlotStatus::kIncomplete;
      if (left_out) publisher_.leave_out(id);
      if (left_out || !has_samples(id)) {
        pool_->give_back(id);
        return false;
      }
      Delivery delivery = publisher_.delivery_of(id);
      is_ours = false;
      hand_out(pool_, id, batch, fetcher_->form() != BatchForm::kStacked);
      batch.delivery = std::move(delivery);
      return true;
    } catch (...) {
      if (is_ours) pool_->give_back(id);
      fail(std::current_exception());
    }
  }

  SlotStatus status_of(uint32_t id) {
    return slot(id).header().status.load(std::memory_order_relaxed);
  }

  std::optional<uint32_t> make_here() {
    const auto id = publisher_.open_next();
    if (!id && publisher_.is_pending()) fail(out_of_memory());
    if (!id) return std::nullopt;
    SlotStatus status;
    try {
      control().publish(*id);
      status = fill_here(*id);
    } catch (...) {
      pool_->give_back(*id);
      fail(std::current_exception());
    }
    if (status != SlotStatus::kFailed) return id;
    const std::exception_ptr told = failure_of(slot(*id), false);
    pool_->give_back(*id);
    const auto own = filler_->take_error();
    fail(own ? own : told);
  }

  SlotStatus fill_here(uint32_t id) {
    const Slot s = slot(id);
    Progress progress;
    const Filler::OwnRandomness own(*filler_);
    s.finish(filler_->hand(s, s.generation()),
             filler_->fill(s, s.generation(), {0, s.num_claimable()}, progress));
    const SlotStatus status = filler_->complete(s);
    s.header().status.store(status, std::memory_order_relaxed);
    return status;
  }

  std::optional<uint32_t> wait_for_workers() {
    publish_more();
    wait_for_drained();
    if (in_flight().empty()) {
      if (publisher_.is_pending()) fail(out_of_memory());
      return std::nullopt;
    }
    const uint32_t id = wait_for_batch();
    const SlotStatus status = status_of(id);
    if (status != SlotStatus::kReady && status != SlotStatus::kIncomplete) {
      const std::exception_ptr told = failure_of(slot(id), true);
      pool_->give_back(id);
      fail(told);
    }
    return id;
  }

  // Of a stream, a batch may have come short, or without any sample: it was the last one of its
  // worker.
  bool has_samples(uint32_t id) {
    const Task& task = publisher_.task(id);
    const uint32_t fetched = slot(id).header().fetched;
    if (!task.worker || fetched == task.num_samples) return true;
    plan_.source().end_stream(*task.worker);
    return fetched > 0 && !options_.drop_last;
  }

  // A clean end. Where it is the end of streams that were resumed, but had nothing left, the next
  // epoch follows at once.
  bool end_reached(BatchLeaves& batch) {
    if (auto error = publisher_.take_error()) fail(error);
    if (plan_.was_resumed() && !pulled_) {
      plan_.finish();
      publisher_.end();
      publisher_.begin();
      return next_on_host(batch);
    }
    end_epoch();
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
    const auto deadline = this->deadline();
    for (;;) {
      if (const auto id = publisher_.arrivals().take(Clock::now())) return *id;
      if (auto error = find_trouble(control(), in_flight(), options_.in_order)) {
        fail(std::make_exception_ptr(*std::move(error)));
      }
      const auto left = deadline - Clock::now();
      if (left.count() <= 0) {
        first_timed_out_ = !pulled_;
        throw report_timeout(options_.timeout.count(),
                             busy_workers(control(), in_flight().front()));
      }
      const auto wait = std::min<Clock::duration>(left, kLookAgain);
      if (!publisher_.arrivals().sleep(wait)) look_after_workers(wait);
    }
  }

  void look_after_workers(Clock::duration waited) try { workers_.look(waited); } catch (...) {
    fail(std::current_exception());
  }

  void count(Clock::duration waited, int64_t samples) {
    if (stats_.epoch.batches == 0) stats_.first_batch = returned_ - began_;
    ++stats_.epoch.batches;
    stats_.epoch.samples += samples;
    stats_.epoch.waited += waited;
  }

  // Also what was copied ahead is not wanted any more.
  void leave_epoch() {
    end_epoch();
    if (stage_) stage_->drop();
  }

  void end_epoch() {
    publisher_.end();
    over_ = true;
    if (workers_.live() && !options_.persistent_workers) {
      workers_.end();
      publisher_.reclaim_all();
    }
  }

  static constexpr std::chrono::duration<double> kLongest = std::chrono::hours(24 * 365);

  const pid_t owner_ = getpid();
  DataLoaderOptions options_;
  std::unique_ptr<Fetcher> fetcher_;
  EpochPlan plan_;
  InFlightLimit in_flight_limit_;
  std::shared_ptr<SlotPool> pool_;
  Publisher publisher_;
  Workers workers_;
  std::optional<Filler> filler_;  // with num_workers = 0
  bool opened_ = false;           // .. the dataset was told that it is used here
  BadSamples bad_samples_;
  std::optional<DeviceStage> stage_;  // with a device

  uint64_t epoch_ = 0;  // begun by this loader
  bool over_ = true;
  bool pulled_ = false;  // a batch of this epoch was handed out, or copied ahead
  bool first_timed_out_ = false;
  std::exception_ptr error_;  // why this epoch ended early

  LoaderStats stats_;
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
std::optional<int64_t> LoaderCore::size() const {
  return impl_->plan().source().batches_per_epoch();
}
StateDict LoaderCore::state_dict() const { return impl_->plan().state_dict(); }
void LoaderCore::load_state_dict(const StateDict& state) { impl_->load_state_dict(state); }
const DataLoaderOptions& LoaderCore::options() const { return impl_->options(); }
const LoaderStats& LoaderCore::stats() const { return impl_->stats(); }

}  // namespace stoker::detail
