// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/sample.h>
#include <stoker/state_dict.h>
#include <stoker/worker.h>

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

namespace torch::data::datasets {
template <typename Self, typename SingleExample>
class Dataset;
}

namespace stoker {

namespace detail {

template <class D>
concept HasSize = requires(D& dataset) {
  { dataset.size() } -> std::convertible_to<size_t>;
}
|| requires(D& dataset) {
  { *dataset.size() } -> std::convertible_to<size_t>;  // torch::data: an optional
};

// torch::data's Dataset gives every class a `get_batch` that only loops over `get`. Where that one
// was inherited as it is, samples are fetched one by one, so that all workers share a batch.
template <class Member>
struct ClassOf;
template <class R, class C>
struct ClassOf<R C::*> {
  using type = C;
};
template <class C>
constexpr bool kIsTorchBase = false;
template <class Self, class Example>
constexpr bool kIsTorchBase<torch::data::datasets::Dataset<Self, Example>> = true;

template <class D>
constexpr bool kInheritsGetBatch = false;
template <class D>
requires requires { typename ClassOf<decltype(&D::get_batch)>::type; }
constexpr bool kInheritsGetBatch<D> = kIsTorchBase<typename ClassOf<decltype(&D::get_batch)>::type>;

}  // namespace detail

/// Any type with `get(size_t)`, which returns a sample, and `size()`. Compare Python's map-style
/// `Dataset`. It may be move-only. `get` runs in the workers, each of which has its own copy of the
/// dataset as it was at the fork; what `get` changes in it stays there.
///
/// A sample's tensors may share the dataset's memory; they may be read as late as when the next
/// `get` has returned. A `get` that makes each sample in the same memory is noticed, and read at
/// once (Python's loader and torch::data would give wrong batches).
template <class D>
concept MapDataset = detail::HasSize<D> && requires(D& dataset, size_t index) {
  { dataset.get(index) } -> SampleType;
};

/// A dataset that opens something in each process for itself: what must not be shared through a
/// fork, such as a file that is read with `lseek` or `std::ifstream`, a database, a socket.
/// `open_in_worker` is called once in each worker (in a replacement too) after `worker_init_fn` and
/// before the first sample, with `seed` 0; with `num_workers` = 0 in the program, by the first
/// `begin()`. What it throws is told as what `worker_init_fn` throws. In Python this is done in
/// `worker_init_fn`, on `get_worker_info().dataset`.
template <class D>
concept OpensInWorker = requires(D& dataset, const WorkerInfo& info) {
  dataset.open_in_worker(info);
};

/// A dataset that finishes something in each process, such as a log. `close_in_worker` is called
/// once in each worker that is told to end, after its last sample, and has 5 s; with `num_workers`
/// = 0 in the program when the loader is destroyed. Not in workers that die or are killed, nor if
/// the program ends without destroying the loader. Destructors do not run in workers.
template <class D>
concept ClosesInWorker = requires(D& dataset) { dataset.close_in_worker(); };

/// The type of a dataset's samples.
template <MapDataset D>
using SampleOf = std::remove_cvref_t<decltype(std::declval<D&>().get(size_t{}))>;

/// A dataset that also fetches whole batches: `get_batch(std::span<const size_t>)`, or the like,
/// returns a `std::vector` of samples, one for each index, in order. The loader then prefers it,
/// and one worker fetches each batch. Compare Python's `__getitems__`.
template <class D>
concept BatchedDataset = MapDataset<D> && !detail::kInheritsGetBatch<D> &&
                         requires(D & dataset, std::span<const size_t> indices) {
  { dataset.get_batch(indices) } -> std::convertible_to<std::vector<SampleOf<D>>>;
};

/// A dataset that is a stream: `stream()` returns an object whose `next()` returns a
/// `std::optional` of a sample, nothing at its end. Compare Python's `IterableDataset`.
///
/// `stream()` is called in each worker at the start of each epoch, with the same randomness in all
/// of them. As in Python each worker has a stream of its own: share the samples among them with
/// `worker_info()`, or set the `shard` option. The stream may have
///
/// - `skip(uint64_t)`, to leave samples out without making them;
/// - `state_dict()` and `load_state_dict(StateDict)`, so that a loader need not skip all that was
///   delivered to resume: the place after the last sample that `next` returned.
template <class D>
concept IterableDataset = !MapDataset<D> && requires(D & dataset) {
  { *dataset.stream().next() } -> SampleType;
};

/// The type of the streams of such a dataset, and of their samples.
template <IterableDataset D>
using StreamOf = decltype(std::declval<D&>().stream());
template <IterableDataset D>
using StreamSampleOf = std::remove_cvref_t<decltype(*std::declval<D&>().stream().next())>;

/// A stream that can tell where it is.
template <class S>
concept StatefulStream = requires(S& stream, const StateDict& state) {
  { stream.state_dict() } -> std::same_as<StateDict>;
  stream.load_state_dict(state);
};

}  // namespace stoker
