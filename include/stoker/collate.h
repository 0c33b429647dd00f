// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/sample.h>

#include <concepts>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace stoker {

/// Stacks samples, the default. See BatchOf. Compare Python's `default_collate`.
struct DefaultCollate {};

/// No batching: each batch is one sample, as the dataset returned it (tensors without a further
/// dimension, numbers as numbers). Compare Python's `batch_size=None` and `default_convert`.
///
///     stoker::DataLoader loader(dataset, {.num_workers = 4}, stoker::DefaultConvert{});
struct DefaultConvert {};

/// What PadCollate makes of samples with the batch type Batch.
template <class Batch>
struct Padded {
  Batch batch;  ///< as BatchOf, tensors padded to the largest size in each dimension
  /// For each tensor leaf of the sample, in order: the sizes before, int64 `[n, ndim]`.
  std::vector<at::Tensor> sizes;
};

template <class Batch>
struct SampleTraits<Padded<Batch>> {
  static auto fields(const Padded<Batch>& padded) { return std::tie(padded.batch, padded.sizes); }
};

namespace detail {

// The leaves of the padded batch, and then the sizes.
BatchLeaves pad_samples(std::span<const FlatSample> samples, double padding_value);

}  // namespace detail

/// Stacks samples whose tensors differ in size (but not in dtype or number of dimensions): each is
/// padded at the end of each dimension. Numbers and strings are as with DefaultCollate. Compare
/// `torch.nn.utils.rnn.pad_sequence` with `batch_first=True`.
///
///     stoker::DataLoader loader(sentences, {.batch_size = 32}, stoker::PadCollate{});
///     for (auto& [tokens, sizes] : loader)   // Tensor [32, longest], {Tensor [32, 1]}
///
/// Throws `std::invalid_argument` for samples that still do not match, naming both.
struct PadCollate {
  double padding_value = 0;

  template <SampleType Sample>
  Padded<BatchOf<Sample>> operator()(const std::vector<Sample>& samples) const {
    std::vector<detail::FlatSample> flat(samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      detail::Codec<Sample>::flatten(samples[i], flat[i]);
    }
    detail::BatchLeaves leaves = detail::pad_samples(flat, padding_value);
    auto batch = detail::Codec<Sample>::gather(leaves);
    std::vector<at::Tensor> sizes;
    while (leaves.has_more()) sizes.push_back(leaves.take_tensor());
    return {std::move(batch), std::move(sizes)};
  }
};

namespace detail {

template <class Collate, class Sample>
struct CollateResult {
  using type = std::remove_cvref_t<std::invoke_result_t<Collate&, std::vector<Sample>&>>;
};
template <class Sample>
struct CollateResult<DefaultCollate, Sample> {
  using type = BatchOf<Sample>;
};
template <class Sample>
struct CollateResult<DefaultConvert, Sample> {
  using type = Sample;
};

}  // namespace detail

/// What says how samples become a batch: DefaultCollate, DefaultConvert, PadCollate, or a function
/// of yours that takes `std::vector<Sample>&` and returns anything that could be a sample (a
/// tensor, a number, a string, containers of these, a struct with SampleTraits). Compare Python's
/// `collate_fn`. It runs in the worker that finishes the batch; tensors of the samples lie in the
/// loader's memory and must not be kept beyond the call. Its randomness depends on the epoch's seed
/// and the batch's place alone.
template <class C, class Sample>
concept CollateFunction = std::same_as<C, DefaultCollate> || std::same_as<C, DefaultConvert> ||
    requires(C& collate, std::vector<Sample>& samples) {
  { collate(samples) } -> SampleType;
};

/// What a loader with these samples and this collation yields.
template <class Collate, class Sample>
using CollatedBatch = typename detail::CollateResult<Collate, Sample>::type;

}  // namespace stoker
