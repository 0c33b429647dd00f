// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/Device.h>
#include <stoker/sampler.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace stoker {

/// What becomes of a sample whose `get` throws.
enum class OnError : uint8_t {
  kRaise,       ///< a WorkerError ends the epoch
  kSkip,        ///< it is left out of the epoch, and the samples behind it move up
  kSubstitute,  ///< another sample of its batch takes its place
};

/// What worker w takes of a stream (IterableDataset) that all workers see alike.
enum class Shard : uint8_t {
  kNone,     ///< all
  kSamples,  ///< samples w, w + num_workers, ..; each worker's last batch may be short
  kBatches,  ///< batches w, ..: the same for any number of workers; only the last one may be short
};

/// What a loader does. The names, their order and, unless said otherwise, their meaning are those
/// of Python's `torch.utils.data.DataLoader`; designated initialisers must follow this order.
/// The loader's constructor checks them all and throws `std::invalid_argument` that names the
/// value given, what is allowed and what to do.
struct DataLoaderOptions {
  /// Samples per batch; at least 1.
  int64_t batch_size = 1;

  /// A new random order each epoch. Not together with `sampler` or `batch_sampler`.
  bool shuffle = false;

  /// The order of the samples. Excludes `shuffle` and `batch_sampler`.
  std::shared_ptr<Sampler<int64_t>> sampler = nullptr;

  /// The samples of each batch; sizes may vary. Excludes `batch_size` other than 1, `shuffle`,
  /// `sampler` and `drop_last`.
  std::shared_ptr<Sampler<std::vector<int64_t>>> batch_sampler = nullptr;

  /// Worker processes. 0 fetches in the calling thread, with the same bytes: meanwhile torch's
  /// default generator and `rand()` are in the states of the samples, for other threads too, and
  /// afterwards where they were. The usual start: one to two per physical core.
  int64_t num_workers = 0;

  /// Batches in page-locked memory, for asynchronous copies to the device: the memory that workers
  /// write is locked where it lies. They may be copied with `non_blocking` and dropped at once.
  /// Warns and goes on where there is no accelerator, or no memory can be locked; `stats()` tells.
  bool pin_memory = false;

  /// Leave out a last batch of fewer than `batch_size` samples.
  bool drop_last = false;

  /// Longest wait for one batch, in seconds (any `std::chrono` duration fits); 0 waits as long as
  /// it takes. Passing it throws a WorkerError; the batch may still be asked for again, the first
  /// one by another `begin()`. Needs workers.
  std::chrono::duration<double> timeout{0};

  /// Called in each worker with its id, before its first sample: once per process, so once in all
  /// while `persistent_workers` is true. Needs workers, as in Python it is not called without.
  std::function<void(int64_t worker_id)> worker_init_fn = nullptr;

  /// Where the epoch's seed and the shuffled order are drawn from; torch's default generator if
  /// absent. Each epoch draws from it in Python's order. Must be a CPU generator.
  std::optional<at::Generator> generator = std::nullopt;

  /// Short for a `generator` of the loader's own with this seed. Excludes `generator`.
  std::optional<uint64_t> seed = std::nullopt;

  /// Batches in flight per worker, at least 1. If absent 2, and more while batches are ready within
  /// microseconds: as many as are made in a millisecond, at most 64 in all. Needs workers.
  std::optional<int64_t> prefetch_factor = std::nullopt;

  /// Keep the workers, and their copy of the dataset, from one epoch to the next. Unlike Python's
  /// it is true by default: a fork is cheapest early. False forks afresh for each epoch, from the
  /// dataset as it is then. Order and bytes are the same either way.
  bool persistent_workers = true;

  /// False yields batches as they are finished instead of in the sampler's order.
  bool in_order = true;

  // What Python's loader does not have.

  /// Of a stream: shares it among the workers, so that each sample comes once. With `kNone` each
  /// worker yields what its stream yields, which must then be a share, see `worker_info()`; or each
  /// sample comes once per worker, as in Python.
  Shard shard = Shard::kNone;

  /// For samples whose `get` (or `get_batch`) throws, and if `max_restarts` lets workers be
  /// replaced, for those that ended two. Either way the same samples make the same batches,
  /// whatever the number of workers: `kSubstitute` takes the next sample of the batch that does not
  /// fail; where none is left the error is raised. `kSkip` makes the batches of the samples that do
  /// not fail, in the sampler's order: all are full but the last, and each good sample comes once; a
  /// sample's randomness is that of its place in the order with all. What is in flight behind a
  /// sample that fails is made again, so where many fail each is fetched about twice. Not for
  /// streams; `kSkip` not with a `batch_sampler`, `in_order` = false or the ranks of a
  /// DistributedSampler, `kSubstitute` not with a `batch_size` of 1. See `LoaderStats::bad_samples`.
  OnError on_error = OnError::kRaise;

  /// How many workers may be replaced in one epoch. One that dies (killed, crashed, out of memory,
  /// over `sample_timeout`) is then forked anew, and its sample is fetched again: the bytes of the
  /// epoch stay the same. A sample that ends two workers is told as a WorkerError, unless
  /// `on_error` handles it, as is any death once none is left; 0 tells each. `worker_init_fn` runs
  /// in replacements too. Needs workers.
  int64_t max_restarts = 0;

  /// Longest time for one sample (with `get_batch`, for a batch), in seconds; 0 is no limit. A
  /// worker that takes longer is killed, within an eighth more; see `max_restarts`. Needs workers.
  std::chrono::duration<double> sample_timeout{0};

  /// Bytes of memory that batches may take in all: those in flight, those that the program keeps,
  /// and free ones. Half of what is available (to the machine and to this process's control group)
  /// when the loader is made, if absent. Where batches come near it, fewer are in flight; where one
  /// more does not fit, `std::runtime_error` tells how many the program keeps, and a sample that
  /// does not fit is an error before its memory is touched.
  std::optional<uint64_t> shared_memory_limit = std::nullopt;

  /// Hands batches out on this device: while it computes, the next one is copied, on a stream of
  /// its own (see DevicePrefetcher, which has options for it). Use together with `pin_memory`.
  /// Batches stay on the host if absent, or the CPU.
  std::optional<at::Device> device = std::nullopt;
};

}  // namespace stoker
