// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/collate.h>
#include <stoker/dataset.h>
#include <stoker/detail/core.h>
#include <stoker/detail/fetchers.h>
#include <stoker/detail/require_dataset.h>
#include <stoker/options.h>
#include <stoker/stats.h>
#include <stoker/worker.h>

#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

namespace stoker {

/// Feeds a training loop with batches that worker processes read and collate into shared memory.
/// The equivalent of Python's `torch.utils.data.DataLoader`, for datasets of both kinds.
///
///     stoker::DataLoader loader(Faces{"faces/"}, {.batch_size = 64, .shuffle = true,
///                                                 .num_workers = 4});
///     for (int epoch = 0; epoch < 10; ++epoch)
///       for (auto& [images, labels] : loader)        // Tensor [64, ...], Tensor [64]
///         train(images, labels);
///
/// A batch's tensors own the memory they lie in, so they may be kept, moved from and dropped at
/// will, also after the loader is gone; dropping the last one lets the loader use it again.
///
/// Construct loaders early: before threads are started, before CUDA is used, and before memory is
/// filled that the workers do not need, since each fork copies the page tables of all of it.
///
/// Move-only; its iterators follow it. One that was moved from throws `std::logic_error` when used.
///
/// Thread safety: like Python's, one thread at a time. Process safety: in a forked child of the
/// program a loader is inert; it must not be iterated there, and may be destroyed.
template <class Dataset, class Collate = DefaultCollate>
class DataLoader {
  using FetcherOf = detail::FetcherOf<typename detail::RequireDataset<Dataset>::type, Collate>;
  using Fetcher = typename FetcherOf::type;

 public:
  using Sample = typename FetcherOf::Sample;
  using Batch = CollatedBatch<Collate, Sample>;
  static_assert(CollateFunction<Collate, Sample>);

  /// Takes the dataset by value (move it in). Throws `std::invalid_argument` for bad options.
  explicit DataLoader(Dataset dataset, DataLoaderOptions options = {}, Collate collate_fn = {})
      : DataLoader(std::make_unique<Fetcher>(std::move(dataset), std::move(collate_fn)),
                   std::move(options)) {}

  DataLoader(DataLoader&&) noexcept = default;
  DataLoader& operator=(DataLoader&&) noexcept = default;

  /// An input iterator; `*` gives the same batch until `++`. Move-only: one epoch has one consumer.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;

    Iterator(Iterator&& other) noexcept
        : core_(std::move(other.core_)),
          epoch_(other.epoch_),
          leaves_(std::move(other.leaves_)),
          batch_(std::exchange(other.batch_, std::nullopt)) {}
    Iterator& operator=(Iterator&& other) noexcept {
      std::swap(core_, other.core_);
      std::swap(epoch_, other.epoch_);
      std::swap(leaves_, other.leaves_);
      std::swap(batch_, other.batch_);
      return *this;
    }
    ~Iterator() {
      batch_.reset();
      if (const auto core = core_.lock()) core->abandon(epoch_);
    }

    /// The batch, for the taking. Throws `std::out_of_range` past the end.
    Batch& operator*() const {
      if (!batch_) throw std::out_of_range("stoker: this iterator is past the end of its epoch");
      return *batch_;
    }
    Batch* operator->() const { return &**this; }

    /// Waits for the next batch. Throws WorkerError; then the epoch is over, and every further
    /// `++` of it throws the same. Throws `std::logic_error` if the loader is gone.
    Iterator& operator++() {
      batch_.reset();  // first: its memory may be what the next one needs
      leaves_.clear();
      const auto core = core_.lock();
      if (!core) throw std::logic_error("stoker: the loader of this iterator is gone");
      if (core->next(epoch_, leaves_)) gather(*core);
      return *this;
    }
    void operator++(int) { ++*this; }

    bool operator==(std::default_sentinel_t) const { return !batch_; }

   private:
    friend class DataLoader;
    Iterator(const std::shared_ptr<detail::LoaderCore>& core, uint64_t epoch)
        : core_(core), epoch_(epoch) {
      ++*this;
    }

    // A batch that cannot be put together is lost, and the epoch with it.
    void gather(detail::LoaderCore& core) {
      try {
        batch_.emplace(Fetcher::gather(leaves_));
      } catch (...) {
        core.end_with(epoch_, std::current_exception());
        throw;
      }
    }

    std::weak_ptr<detail::LoaderCore> core_;  // an iterator may outlive its loader
    uint64_t epoch_;
    detail::BatchLeaves leaves_;
    mutable std::optional<Batch> batch_;
  };

  /// Begins a new epoch; cheap also when the one before was left early. Ends that one: an iterator
  /// of it that is still used throws `std::logic_error`.
  Iterator begin() {
    const uint64_t epoch = core().begin_epoch();
    return Iterator(core_, epoch);
  }
  std::default_sentinel_t end() const { return {}; }

  /// Batches per epoch, as Python's `len(loader)`; of a stream, what its dataset's `size()`
  /// promises. Throws `std::logic_error` if the sampler, or the stream's dataset, does not tell.
  size_t size() const {
    const auto size = core().size();
    if (!size) throw std::logic_error("stoker: the sampler does not tell its size");
    return static_cast<size_t>(*size);
  }

  /// Where the loader is: after the batch that was handed out last. A few hundred bytes (5 KB where
  /// the generator is more than a million draws from its seed). Compare torchdata's
  /// `StatefulDataLoader`.
  StateDict state_dict() const { return core().state_dict(); }

  /// The next `begin()` goes on after that place, with the bytes that would have come, also with
  /// another `num_workers`, `prefetch_factor` or persistence; if nothing is left of that epoch, it
  /// begins the next one. So it does not matter whether the state was taken in the loop, after the
  /// last batch, or behind the loop. Later epochs follow as they would have.
  ///
  /// Sets the generator that the loader draws from, which may be torch's default one: a program
  /// that restores that itself does so afterwards. Takes the sampler along, see
  /// `Sampler::state_dict`. Ends an epoch that is under way.
  /// Throws `std::invalid_argument` for a damaged state, or one of another `batch_size` or size of
  /// the dataset.
  void load_state_dict(const StateDict& state) { core().load_state_dict(state); }

  /// The program's own copy of the dataset. Changes reach the workers when they are forked: at
  /// the next epoch with `persistent_workers = false`, never with persistent ones.
  Dataset& dataset() {
    core();
    return fetcher_->dataset();
  }
  const DataLoaderOptions& options() const { return core().options(); }
  const LoaderStats& stats() const { return core().stats(); }

 private:
  DataLoader(std::unique_ptr<Fetcher> fetcher, DataLoaderOptions options)
      : fetcher_(fetcher.get()),
        core_(std::make_shared<detail::LoaderCore>(std::move(fetcher), std::move(options))) {}

  detail::LoaderCore& core() const {
    if (core_) return *core_;
    throw std::logic_error("stoker: this loader was moved from; use the one it was moved to");
  }

  Fetcher* fetcher_;  // owned by core_
  std::shared_ptr<detail::LoaderCore> core_;
};

template <class Dataset>
DataLoader(Dataset) -> DataLoader<Dataset>;
template <class Dataset>
DataLoader(Dataset, DataLoaderOptions) -> DataLoader<Dataset>;
template <class Dataset, class Collate>
DataLoader(Dataset, DataLoaderOptions, Collate) -> DataLoader<Dataset, Collate>;

}  // namespace stoker
