// SPDX-License-Identifier: BSD-3-Clause
#include "loader/checked_options.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <sched.h>
#include <stoker/samplers.h>
#include <strings.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>

namespace stoker::detail {

namespace {

template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (condition) return;
  std::ostringstream text;
  text << "stoker: ";
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

void check_ranges(const DataLoaderOptions& o) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  require(o.batch_size >= 1 && o.batch_size <= kMost, "batch_size is ", o.batch_size,
          "; it must be 1 or more, and fit 32 bits");
  require(o.num_workers >= 0, "num_workers is ", o.num_workers,
          "; it must be 0 (fetch in the calling thread) or more");
  require(o.num_workers <= kMostWorkers, "num_workers is ", o.num_workers, "; at most ",
          kMostWorkers, " are possible, and one or two per core are usual");
  require(o.timeout.count() >= 0 && std::isfinite(o.timeout.count()), "timeout is ",
          o.timeout.count(), " s; it must be finite, and 0 (no limit) or more");
  require(o.max_restarts >= 0 && o.max_restarts <= kMost, "max_restarts is ", o.max_restarts,
          "; it must be 0 (report every death) or more");
  require(o.sample_timeout.count() >= 0 && std::isfinite(o.sample_timeout.count()),
          "sample_timeout is ", o.sample_timeout.count(),
          " s; it must be finite, and 0 (no limit) or more");
  require(o.shared_memory_limit.value_or(1) > 0,
          "shared_memory_limit is 0 bytes; leave it out for half of the memory available");
  if (o.prefetch_factor) {
    require(*o.prefetch_factor >= 1, "prefetch_factor is ", *o.prefetch_factor,
            "; it must be 1 or more");
    require(*o.prefetch_factor <= kMostInFlight / std::max<int64_t>(o.num_workers, 1),
            "prefetch_factor is ", *o.prefetch_factor, "; with ", o.num_workers,
            " workers at most ", kMostInFlight / std::max<int64_t>(o.num_workers, 1),
            " is possible");
  }
}

void check_order_of_samples(const DataLoaderOptions& o) {
  require(!(o.sampler && o.shuffle),
          "sampler and shuffle exclude each other; shuffle in the sampler");
  if (!o.batch_sampler) return;
  require(o.batch_size == 1, "batch_sampler and batch_size (", o.batch_size,
          ") exclude each other; the batch_sampler says how large batches are");
  require(!o.shuffle, "batch_sampler and shuffle exclude each other; shuffle in the batch_sampler");
  require(!o.sampler, "batch_sampler and sampler exclude each other; give one of them");
  require(!o.drop_last,
          "batch_sampler and drop_last exclude each other; leave batches out in the batch_sampler");
}

void check_without_workers(const DataLoaderOptions& o) {
  if (o.num_workers > 0) return;
  require(o.timeout.count() == 0, "timeout is ", o.timeout.count(),
          " s with num_workers = 0, where nothing can time out; remove it, or use workers");
  require(o.max_restarts == 0, "max_restarts is ", o.max_restarts,
          " with num_workers = 0, where nothing can be restarted; remove it, or use workers");
  require(o.sample_timeout.count() == 0, "sample_timeout is ", o.sample_timeout.count(),
          " s with num_workers = 0, where nothing can be killed; remove it, or use workers");
  require(!o.prefetch_factor, "prefetch_factor is ", o.prefetch_factor.value_or(0),
          " with num_workers = 0, where nothing is prefetched; remove it, or use workers");
}

void check_on_error(const DataLoaderOptions& o) {
  require(!(o.on_error == OnError::kSkip && o.batch_sampler),
          "on_error is kSkip with a batch_sampler, whose batches are not to be filled up with "
          "others' samples; use kSubstitute");
  const auto sampler = std::dynamic_pointer_cast<DistributedSampler>(o.sampler);
  const bool are_equal =
      sampler && sampler->options().num_replicas > 1 && sampler->options().padding;
  require(!(o.on_error == OnError::kSkip && are_equal),
          "on_error is kSkip with a DistributedSampler that gives all ranks the same number of "
          "samples; a rank that skips some makes fewer steps, and the others would wait for it for "
          "ever; use kSubstitute, or padding = false where ranks may differ");
  require(!(o.on_error == OnError::kSkip && !o.in_order),
          "on_error is kSkip with in_order = false, where it would depend on the workers which "
          "samples fill up a batch; leave in_order true, or use kSubstitute");
  require(!(o.on_error == OnError::kSubstitute && !o.batch_sampler && o.batch_size == 1),
          "on_error is kSubstitute with batch_size = 1, where a batch has no other sample; use "
          "kSkip");
}

void check_randomness(const DataLoaderOptions& o) {
  require(!(o.generator && o.seed), "generator and seed exclude each other; give one of them");
  if (!o.generator) return;
  require(o.generator->defined(), "generator is undefined; make one, or leave it out");
  require(o.generator->device().is_cpu(), "generator is one for ", o.generator->device(),
          "; give one for the CPU (at::detail::createCPUGenerator)");
}

// The variables by which OpenMP's runtimes, GCC's and LLVM's, are told to pin threads to cores.
const char* pinning_variable() {
  for (const char* const name : {"OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && strcasecmp(value, "false") != 0) return name;
  }
  return nullptr;
}

// What to do where OpenMP may be why there are so few cores.
std::string advice() {
  const char* const name = pinning_variable();
  if (name == nullptr) return "";
  return std::string(". ") + name +
         " is set, which may have pinned the thread that made the loader; workers inherit that: "
         "make the loader before the first parallel region, or unset it";
}

void warn_about_cores(int64_t num_workers) {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return;
  const int cores = CPU_COUNT(&cpus);
  if (num_workers > cores) {
    TORCH_WARN("stoker: num_workers is ", num_workers, ", but this process may use only ", cores,
               " cores; more workers than cores can slow down loading and training", advice());
  }
}

}  // namespace

DataLoaderOptions checked(DataLoaderOptions options) {
  check_ranges(options);
  check_order_of_samples(options);
  check_without_workers(options);
  check_on_error(options);
  check_randomness(options);
  warn_about_cores(options.num_workers);
  if (options.seed) options.generator = at::make_generator<at::CPUGeneratorImpl>(*options.seed);
  return options;
}

void check_for_dataset(const DataLoaderOptions& o, const Fetcher& fetcher) {
  if (fetcher.is_stream()) {
    require(o.on_error == OnError::kRaise,
            "on_error is not kRaise for a dataset that is a stream: one that threw cannot go on");
    require(!o.shuffle, "shuffle is true for a dataset that is a stream; shuffle in its stream()");
    require(!o.sampler && !o.batch_sampler,
            "a sampler is given for a dataset that is a stream, whose samples have no indices");
  } else {
    require(o.shard == Shard::kNone,
            "shard is given for a dataset with indices, which workers share anyway");
  }
  if (fetcher.form() == BatchForm::kSingle) {
    require(o.batch_size == 1, "batch_size is ", o.batch_size,
            " with DefaultConvert, which does not batch; leave it out");
    require(!o.batch_sampler, "batch_sampler and DefaultConvert exclude each other");
    require(!o.drop_last, "drop_last is true with DefaultConvert, which does not batch");
  }
}

}  // namespace stoker::detail
