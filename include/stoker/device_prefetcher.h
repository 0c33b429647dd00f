// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/detail/batch_tensors.h>
#include <stoker/detail/copied_ahead.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace stoker {

/// Copies the batches of a loader to a device ahead of their use, on a stream of its own, while the
/// device computes: a range over the same batches, there. Short for it, without options:
/// `DataLoaderOptions::device`.
///
///     stoker::DataLoader loader(Faces{}, {.batch_size = 64, .num_workers = 4, .pin_memory =
///     true}); stoker::DevicePrefetcher batches(loader, torch::kCUDA, {.dtype = torch::kHalf}); for
///     (int epoch = 0; epoch < 10; ++epoch)
///       for (auto& [images, labels] : batches) train(images, labels);
///
/// The loader may be any range with `begin` and `end` (torch::data's, a vector of batches), whose
/// batches are tensors, numbers and strings, in pairs, tuples, arrays, vectors, maps, optionals,
/// `torch::data::Example` or structs with SampleTraits (of the batch's type). It must outlive the
/// prefetcher. Its batches should be contiguous, pinned, and of the final shape; what else is to be
/// changed is for the options.
///
/// Batches are ordered for the stream that is the thread's current one at each `++`: use them
/// there, or make other streams wait for it. Their memory is used again only when that stream has
/// passed the point where they were dropped. A tensor that is on the device already is handed on as
/// it is.
///
/// On the CPU it hands batches on, with the options' changes, one by one, and touches no stream.
///
/// Not during the capture of a CUDA graph: copy batches into the graph's input instead.
///
/// Move-only; its iterators follow it. One that was moved from throws `std::logic_error` when used.
///
/// Thread safety: one thread at a time, not always the same. Several prefetchers, on one device or
/// several, are independent.
template <class Loader>
class DevicePrefetcher {
  using SourceIterator = decltype(std::declval<Loader&>().begin());

 public:
  using Batch = std::remove_cvref_t<decltype(*std::declval<SourceIterator&>())>;

  /// Throws `std::invalid_argument` if the device cannot be used, or for bad options. Make it after
  /// the loader, whose workers must be forked first.
  DevicePrefetcher(Loader& loader, at::Device device, DevicePrefetcherOptions options = {})
      : state_(std::make_shared<State>(loader, device, std::move(options))) {}

  DevicePrefetcher(DevicePrefetcher&&) noexcept = default;
  DevicePrefetcher& operator=(DevicePrefetcher&&) noexcept = default;

  /// An input iterator; `*` gives the same batch until `++`. Move-only: one epoch has one consumer.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = Batch*;
    using reference = Batch&;

    Iterator(Iterator&& other) noexcept
        : state_(std::move(other.state_)),
          epoch_(other.epoch_),
          batch_(std::exchange(other.batch_, std::nullopt)) {}
    Iterator& operator=(Iterator&& other) noexcept {
      std::swap(state_, other.state_);
      std::swap(epoch_, other.epoch_);
      std::swap(batch_, other.batch_);
      return *this;
    }
    ~Iterator() {
      if (const auto state = state_.lock()) state->leave(epoch_);
    }

    /// The batch, for the taking. Throws `std::out_of_range` past the end.
    Batch& operator*() const {
      if (!batch_) throw std::out_of_range("stoker: this iterator is past the end of its epoch");
      return *batch_;
    }
    Batch* operator->() const { return &**this; }

    /// The next batch. Throws what the loader throws, behind the batches before; and what libtorch
    /// throws of a copy. Throws `std::logic_error` if the prefetcher is gone, or began another
    /// epoch.
    Iterator& operator++() {
      batch_.reset();
      const auto state = state_.lock();
      if (!state) throw std::logic_error("stoker: the prefetcher of this iterator is gone");
      batch_ = state->next(epoch_);
      return *this;
    }
    void operator++(int) { ++*this; }

    bool operator==(std::default_sentinel_t) const { return !batch_; }

   private:
    friend class DevicePrefetcher;
    explicit Iterator(const std::shared_ptr<typename DevicePrefetcher::State>& state)
        : state_(state), epoch_(state->begin()) {
      ++*this;
    }

    std::weak_ptr<typename DevicePrefetcher::State> state_;
    uint64_t epoch_;
    mutable std::optional<Batch> batch_;
  };

  /// Begins a new epoch of the loader, and ends the one before.
  Iterator begin() {
    state();
    return Iterator(state_);
  }
  std::default_sentinel_t end() const { return {}; }

  /// Batches per epoch, if the loader tells.
  auto size() const requires requires(const Loader& loader) { loader.size(); }
  { return state().loader.size(); }

  /// Where the batches are; with its index.
  at::Device device() const { return state().batches.device(); }

 private:
  struct State {
    State(Loader& from, at::Device device, DevicePrefetcherOptions options)
        : loader(from), batches(device, std::move(options), "device") {}

    uint64_t begin() {
      batches.drop();
      source.reset();
      source.emplace(loader.begin());
      is_fresh = true;
      is_over = false;
      return ++epoch;
    }
    void leave(uint64_t of) {
      if (of != epoch) return;
      batches.drop();
      source.reset();
    }
    std::optional<Batch> next(uint64_t of) {
      if (of != epoch) {
        throw std::logic_error("stoker: this iterator's epoch was ended by a later begin()");
      }
      return batches.next([this] { return pull(); });
    }

    // The iterator goes on as late as it can: that may wait, and it holds the batch until then. One
    // that threw equals the end too, but may be asked again.
    std::optional<Batch> pull() {
      if (is_over) return std::nullopt;
      if (!std::exchange(is_fresh, false)) ++*source;
      is_over = *source == loader.end();
      if (is_over) return std::nullopt;
      if constexpr (std::forward_iterator<SourceIterator>) {
        return **source;  // others may come by again
      } else {
        return std::move(**source);
      }
    }

    Loader& loader;
    detail::CopiedAhead<Batch, detail::BatchTensors> batches;
    std::optional<SourceIterator> source;
    bool is_fresh = true;  // its first batch was not taken yet
    bool is_over = false;
    uint64_t epoch = 0;
  };

  State& state() const {
    if (state_) return *state_;
    throw std::logic_error("stoker: this prefetcher was moved from; use the one it was moved to");
  }

  std::shared_ptr<State> state_;
};

}  // namespace stoker
