// SPDX-License-Identifier: BSD-3-Clause
#include "combination_run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <stoker/sampler_of.h>
#include <stoker/samplers.h>

#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>

#include "combination_loader.h"
#include "combination_model.h"
#include "device_test.h"

namespace stoker::combination {
namespace {

struct Epoch {
  std::vector<Seen> batches;
  std::string error;
  bool is_worker_error = false;
  bool had_workers = false;
};

struct Run {
  std::vector<Epoch> epochs;
  int64_t batches_told = 0;  // by the last loader's stats()
  int64_t errors_told = 0;
  std::string finding;  // what was seen on the way
};

std::unique_ptr<AnyLoader> make_loader(const Trouble& trouble, DataLoaderOptions options) {
  switch (trouble.combination().dataset) {
    case kMap: return make_map_loader(trouble, std::move(options));
    case kBatched: return make_batched_loader(trouble, std::move(options));
    default: return make_stream_loader(trouble, std::move(options));
  }
}

void set_order(const Combination& c, int64_t salt, DataLoaderOptions& options) {
  std::optional<at::Generator> own;
  if (c.source != kDefaultGenerator) {
    own = at::detail::createCPUGenerator(static_cast<uint64_t>(salt + 1));
  }
  if (c.source == kGenerator) {
    options.generator = at::detail::createCPUGenerator(static_cast<uint64_t>(salt));
  }
  if (c.source == kOwnSeed) options.seed = static_cast<uint64_t>(salt);
  options.shuffle = c.order == kShuffle;
  if (c.order == kSequential) options.sampler = std::make_shared<SequentialSampler>(c.samples);
  if (c.order == kReplacement) {
    options.sampler = std::make_shared<RandomSampler>(c.samples, true, std::nullopt, own);
  }
  if (c.order == kSubset) {
    options.sampler = std::make_shared<SubsetRandomSampler>(subset_of(c), own);
  }
  if (c.order == kRepeats) options.sampler = sampler_of(repeats_of(c));
  if (c.order == kBatches) options.batch_sampler = sampler_of(batches_of(c));
}

// The options whatever happens; the generators are those of another seed after a resume, as they
// are to come from the state.
DataLoaderOptions plain_options(const Combination& c, size_t resumes) {
  DataLoaderOptions options;
  options.batch_size = c.batch_size;
  options.drop_last = c.drop_last != 0;
  options.on_error = static_cast<OnError>(c.on_error);
  options.shard = static_cast<Shard>(c.shard);
  set_order(c, c.salt + 100 * static_cast<int64_t>(resumes), options);
  return options;
}

DataLoaderOptions whole_options(const Combination& c, size_t resumes,
                                std::chrono::seconds timeout) {
  DataLoaderOptions options = plain_options(c, resumes);
  const Number prefetch = resumes > 0 ? c.stop_prefetch : c.prefetch_factor;
  options.num_workers = resumes > 0 ? c.stop_workers : c.num_workers;
  options.persistent_workers = (resumes > 0 ? c.stop_persistent : c.persistent_workers) != 0;
  options.in_order = c.in_order != 0;
  options.pin_memory = c.pin_memory != 0;
  if (c.device != 0) options.device = fake::device();
  if (c.limit_mb > 0) options.shared_memory_limit = static_cast<uint64_t>(c.limit_mb) << 20;
  if (options.num_workers == 0) return options;
  options.timeout = timeout;
  if (prefetch > 0) options.prefetch_factor = prefetch;
  if (!c.accidents.empty() || !c.killers.empty()) options.max_restarts = 1000;
  if (c.accidents_end == kHang || c.killers_end == kHang) options.sample_timeout = 300ms;
  return options;
}

void set_default_generator(int64_t seed) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  generator.set_current_seed(static_cast<uint64_t>(seed));
}

// Drives loaders, one after another where it stops, through all epochs.
class Driver {
 public:
  using MakeOptions = std::function<DataLoaderOptions(size_t resumes)>;

  Driver(const Combination& c, std::vector<ModelEpoch> model, MakeOptions make_options)
      : c_(c), model_(std::move(model)), make_options_(std::move(make_options)), trouble_(c) {}

  Run run() {
    set_default_generator(c_.salt);
    std::srand(static_cast<unsigned>(c_.salt));
    make();
    for (Number e = 0; e < c_.epochs; ++e) {
      run_.epochs.emplace_back();
      epoch_ = &run_.epochs.back();
      epoch_->had_workers = workers_ > 0;
      try {
        run_epoch(e);
      } catch (const WorkerError& error) {
        epoch_->error = error.what();
        epoch_->is_worker_error = true;
      } catch (const std::exception& error) {
        epoch_->error = error.what();
      }
      if (epoch_->error.find("no batch within the timeout") != std::string::npos) {
        run_.finding = "hang: " + epoch_->error + " in epoch " + std::to_string(e);
        break;
      }
      if (!epoch_->error.empty()) since_ = -1'000'000;  // no stop after an error
    }
    run_.batches_told = loader_->stats().total.batches;
    run_.errors_told = loader_->stats().errors;
    while (!kept_.empty()) drop_oldest();
    return std::move(run_);
  }

 private:
  void make() {
    DataLoaderOptions options = make_options_(resumes_);
    workers_ = options.num_workers;
    trouble_.use(workers_ == 0 ? without_deaths(c_) : c_);
    loader_ = make_loader(trouble_, std::move(options));
    since_ = 0;
  }

  void run_epoch(Number e) {
    const ModelEpoch& model = model_.at(static_cast<size_t>(e));
    const auto is_end = [&] { return epoch_->batches.size() == model.batches.size(); };
    bool more = loader_->begin();
    while (more) {
      receive();
      if (e == c_.leave_epoch && epoch_->batches.size() == static_cast<size_t>(c_.leave_after)) {
        return;
      }
      if (is_due() && !(is_end() && c_.stop_behind != 0)) {
        resume();
        if (is_end()) return;  // the next begin() begins the next epoch
        more = loader_->begin();
      } else {
        more = loader_->next();
      }
    }
    if (is_due()) resume();
  }

  bool is_due() const {
    return resumes_ < c_.stop_after.size() && since_ >= c_.stop_after[resumes_];
  }

  void resume() {
    const std::string json = loader_->state().to_json();
    loader_.reset();
    ++resumes_;
    set_default_generator(c_.salt + 7);
    make();
    epoch_->had_workers = workers_ > 0;
    loader_->load(StateDict::from_json(json));
  }

  void receive() {
    const Seen seen = loader_->look();
    if (c_.device != 0 && !seen.on_device && make_options_(resumes_).device) {
      run_.finding = "device: a tensor is not there";
    }
    epoch_->batches.push_back(seen);
    ++since_;
    if (c_.keep == 0) return;
    kept_.emplace_back(seen, loader_->take());
    if (kept_.size() > static_cast<size_t>(c_.keep)) drop_oldest();
  }

  void drop_oldest() {
    if (kept_.front().second() != kept_.front().first) run_.finding = "kept: a batch has changed";
    kept_.pop_front();
  }

  Combination c_;
  std::vector<ModelEpoch> model_;
  MakeOptions make_options_;
  Trouble trouble_;
  Number workers_ = 0;
  size_t resumes_ = 0;
  Number since_ = 0;  // batches since the loader was made
  std::unique_ptr<AnyLoader> loader_;
  std::deque<std::pair<Seen, std::function<Seen()>>> kept_;
  Run run_;
  Epoch* epoch_ = nullptr;
};

std::string text_of_batches(const std::vector<Seen>& batches) {
  std::string text;
  for (const Seen& batch : batches) text += text_of("", batch.indices) + " ";
  return text;
}

// How a run's epochs differ from the model's, and from those of an undisturbed run.
class Comparison {
 public:
  Comparison(const Combination& c, const std::vector<ModelEpoch>& model, bool in_order)
      : c_(c), model_(model), in_order_(in_order) {}

  std::string structure(const Run& run, bool may_leave) const {
    if (!run.finding.empty()) return run.finding;
    for (size_t e = 0; e < run.epochs.size(); ++e) {
      const bool left = may_leave && static_cast<Number>(e) == c_.leave_epoch;
      const std::string text = epoch_structure(run.epochs[e], model_[e], left);
      if (!text.empty()) return text + " in epoch " + std::to_string(e);
    }
    return "";
  }

  // The same bytes in the same batch.
  std::string bytes(const Run& run, const Run& reference) const {
    for (size_t e = 0; e < run.epochs.size(); ++e) {
      std::vector<Seen> left = reference.epochs[e].batches;
      const bool whole = reference.epochs[e].error.empty();
      size_t place = 0;
      for (Seen seen : run.epochs[e].batches) {
        seen.on_device = false;
        const auto same = std::find(left.begin(), in_order_ && !left.empty() ? left.begin() + 1
                                                                             : left.end(), seen);
        if (same != left.end() && *same == seen) {
          left.erase(same);
        } else if (whole || in_order_) {
          return "bytes: of batch " + std::to_string(place) + " " + text_of("", seen.indices) +
                 " of epoch " + std::to_string(e);
        }
        ++place;
      }
    }
    return "";
  }

  std::string counts(const Run& run) const {
    if (!c_.stop_after.empty() || c_.leave_epoch >= 0) return "";
    int64_t batches = 0, least = 0, most = 0;
    for (size_t e = 0; e < run.epochs.size(); ++e) {
      batches += static_cast<int64_t>(run.epochs[e].batches.size());
      least += model_[e].errors_least;
      most += model_[e].errors_most;
      if (!run.epochs[e].error.empty()) return "";
    }
    if (run.batches_told != batches) {
      return "stats: total.batches is " + std::to_string(run.batches_told) + " of " +
             std::to_string(batches);
    }
    if (run.errors_told >= least && run.errors_told <= most) return "";
    return "stats: errors is " + std::to_string(run.errors_told) + ", not " +
           std::to_string(least) + " to " + std::to_string(most);
  }

 private:
  // Whether the text is that of an error that this batch may end with.
  bool fits(const Epoch& epoch, const ModelBatch& batch) const {
    if (epoch.had_workers && !epoch.is_worker_error) return false;
    for (const Number index : batch.failing) {
      const std::string number = std::to_string(index);
      const auto says = [&](const std::string& text) {
        return epoch.error.find(text) != std::string::npos;
      };
      if (says("bad sample " + number + ";")) return true;
      const bool killer = holds(c_.killers, index);
      if (killer && (c_.dataset == kBatched || says("index " + number) || says("sample " + number)))
        return says("ended") || says("exited") || says("killed");
      if (c_.killers.empty() && c_.on_error == kRaise) return false;  // the lowest row is told
    }
    return false;
  }

  std::string epoch_structure(const Epoch& epoch, const ModelEpoch& model, bool left) const {
    const std::string came = "; came " + text_of_batches(epoch.batches) + epoch.error;
    std::vector<ModelBatch> rest = model.batches;
    size_t place = 0;
    for (const Seen& seen : epoch.batches) {
      const auto same = std::find_if(rest.begin(), rest.end(), [&](const ModelBatch& batch) {
        return batch.failing.empty() && batch.indices == seen.indices;
      });
      if (same == rest.end() || (in_order_ && same != rest.begin())) {
        return "batches: " + std::to_string(place) + " is " + text_of("", seen.indices) +
               (rest.empty() ? ", not the end" : ", not " + text_of("", rest.front().indices)) +
               came;
      }
      rest.erase(same);
      ++place;
    }
    if (left && place == static_cast<size_t>(c_.leave_after)) return "";
    if (c_.state_throws_at > 0) {
      const Number workers = std::max<Number>(c_.num_workers, 1);
      const Number batch = (c_.state_throws_at - 1) / c_.batch_size * workers;
      const bool told = epoch.error.find("no state here;") != std::string::npos;
      if (told && (!in_order_ || static_cast<Number>(place) <= batch + 1)) return "";
      return "error: that of state_dict() is lost, or told late" + came;
    }
    if (!epoch.error.empty()) {
      for (const ModelBatch& batch : rest) {
        if (fits(epoch, batch)) return "";
        if (in_order_) break;
      }
      return "error: not the one expected" + came;
    }
    if (rest.empty()) return "";
    return (rest.front().failing.empty() ? "batches: lost " : "error: none for ") +
           text_of("", rest.front().indices) + came;
  }

  Combination c_;
  const std::vector<ModelEpoch>& model_;
  bool in_order_;
};

std::string refusal_of(Combination c) {
  const bool stream = c.invalid == kStreamOnError || c.invalid == kStreamShuffle;
  c.dataset = stream ? Number(kStream) : Number(kMap);
  DataLoaderOptions options{.batch_size = 2};
  switch (c.invalid) {
    case kSkipOutOfOrder: options.in_order = false, options.on_error = OnError::kSkip; break;
    case kSkipBatchSampler:
      options.batch_size = 1;
      options.batch_sampler = sampler_of(batches_of(c)), options.on_error = OnError::kSkip;
      break;
    case kSubstituteOne: options.batch_size = 1, options.on_error = OnError::kSubstitute; break;
    case kStreamOnError: options.on_error = OnError::kSkip; break;
    case kStreamShuffle: options.shuffle = true; break;
    case kTimeoutWithoutWorkers: options.timeout = 1s; break;
    default:
      options.sampler = std::make_shared<DistributedSampler>(
          c.samples, DistributedSamplerOptions{.num_replicas = 2});
      options.on_error = OnError::kSkip;
  }
  c.collate = kStack;
  try {
    make_loader(Trouble(c), options);
  } catch (const std::invalid_argument&) {
    return "";
  }
  return "options: not refused: " + text_of("invalid", c.invalid);
}

}  // namespace

std::string finding_of(const Combination& c, std::chrono::seconds timeout,
                       const std::function<void(const char*)>& at) {
  at("options");
  if (c.invalid != kValid) return refusal_of(c);
  Model maker(c);
  std::vector<ModelEpoch> model;
  for (Number e = 0; e < c.epochs; ++e) model.push_back(maker.epoch());

  at("undisturbed");
  Combination plain = without_deaths(c);
  plain.slow = plain.leave_epoch = -1, plain.state_throws_at = plain.keep = 0;
  plain.stop_after.clear();
  Run reference = Driver(plain, model, [&](size_t) {
                    DataLoaderOptions options = plain_options(plain, 0);
                    if (c.dataset == kStream) options.num_workers = c.num_workers;
                    return options;
                  }).run();
  for (Epoch& epoch : reference.epochs) {
    for (Seen& seen : epoch.batches) seen.on_device = false;
  }
  std::string text = Comparison(plain, model, true).structure(reference, false);
  if (!text.empty()) return "undisturbed " + text;

  at("run");
  if (c.device != 0 || c.pin_memory != 0) {
    fake::install();
    detail::replace_host_pin_api(fake::host_pin_api());
    fake::set_delay(std::chrono::microseconds(c.salt % 200));
  }
  const Run run =
      Driver(c, model, [&](size_t resumes) { return whole_options(c, resumes, timeout); }).run();
  at("compare");
  const Comparison comparison(c, model, c.in_order != 0);
  text = comparison.structure(run, true);
  if (text.empty()) text = comparison.bytes(run, reference);
  if (text.empty()) text = comparison.counts(run);
  return text;
}

}  // namespace stoker::combination
