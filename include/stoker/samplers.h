// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The samplers that DataLoaderOptions do not make by themselves.

#include <stoker/sampler.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace stoker {

/// The given indices, in a new random order each epoch, drawn from the generator (torch's default
/// one, if absent) at the first `next`. The order is that of
/// `torch.utils.data.SubsetRandomSampler`.
class SubsetRandomSampler final : public Sampler<int64_t> {
 public:
  explicit SubsetRandomSampler(std::vector<int64_t> indices,
                               std::optional<at::Generator> generator = std::nullopt);
  ~SubsetRandomSampler() override;

  void reset() override;
  std::optional<int64_t> next() override;
  std::optional<int64_t> size() const override { return static_cast<int64_t>(indices_.size()); }
  void skip(int64_t n) override;
  /// The state of the generator it draws from.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  struct Epoch;
  void begin();

  std::vector<int64_t> indices_;
  std::optional<at::Generator> generator_;
  std::unique_ptr<Epoch> epoch_;
};

/// Draws `num_samples` of the indices 0 .. weights.size() - 1 each epoch, index i with a
/// probability in proportion to weights[i], which need not add up to 1. Everything is drawn from
/// the generator (torch's default one, if absent) at the first `next`. The order is that of
/// `torch.utils.data.WeightedRandomSampler`; unlike there, more than 2^24 weights are possible, and
/// an index of weight 0 is never drawn. Of more than 2^27 with replacement, the order is another
/// than there: only a seed is drawn from the generator, so that the first comes at once.
///
/// Memory: 8 bytes per weight; without replacement, 24 more per weight at the start of an epoch.
class WeightedRandomSampler final : public Sampler<int64_t> {
 public:
  /// Throws `std::invalid_argument` for weights that are negative, infinite, not a number or all
  /// zero, for a `num_samples` that is not positive, and, without `replacement`, for one that is
  /// greater than the number of weights above 0.
  WeightedRandomSampler(std::vector<double> weights, int64_t num_samples, bool replacement = true,
                        std::optional<at::Generator> generator = std::nullopt);
  ~WeightedRandomSampler() override;

  void reset() override;
  std::optional<int64_t> next() override;
  std::optional<int64_t> size() const override { return num_samples_; }
  void skip(int64_t n) override;
  /// The state of the generator it draws from.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  struct Epoch;
  void begin();

  std::vector<double> weights_;  // or, with replacement, the sums of the weights up to each
  int64_t num_samples_;
  bool one_by_one_;  // drawn at each `next`, not all at once
  std::optional<at::Generator> generator_;
  std::unique_ptr<Epoch> epoch_;
};

/// What a DistributedSampler does; the names are Python's, but for `padding`.
struct DistributedSamplerOptions {
  /// How many processes share the samples; must be given. (Python asks torch.distributed.)
  int64_t num_replicas = 0;
  /// Which of them this is, from 0.
  int64_t rank = 0;
  /// A new random order each epoch, the same for all ranks.
  bool shuffle = true;
  /// The order of an epoch is drawn from `seed` + its number. Must be the same for all ranks.
  int64_t seed = 0;
  /// Leave out samples at the end of the order, so that all ranks get the same number.
  bool drop_last = false;
  /// Without `drop_last`: repeat samples from the start of the order, so that all ranks get the
  /// same number. False repeats none: some ranks get one sample less. Use it to evaluate each
  /// sample exactly once.
  bool padding = true;
};

/// Every `num_replicas`-th index of an order that all ranks share, from `rank` on. The order is
/// that of `torch.utils.data.DistributedSampler`; unlike there, each epoch is a new one without
/// `set_epoch`.
class DistributedSampler final : public Sampler<int64_t> {
 public:
  /// Throws `std::invalid_argument` if `size` is negative, `num_replicas` not positive or `rank`
  /// not in 0 .. num_replicas - 1, or for `drop_last` without `padding`.
  DistributedSampler(int64_t size, DistributedSamplerOptions options);
  ~DistributedSampler() override;

  /// The number of the next epoch that begins; those after it count on from there. The first one is
  /// 0. The same on all ranks.
  void set_epoch(int64_t epoch) { next_epoch_ = epoch; }
  /// How many of this rank's indices are no repetitions: the first ones of each epoch. What follows
  /// is padding, to be left out of an evaluation's sums.
  int64_t valid_count() const { return valid_count_; }
  const DistributedSamplerOptions& options() const { return options_; }

  void reset() override;
  std::optional<int64_t> next() override;
  std::optional<int64_t> size() const override { return count_; }
  void skip(int64_t n) override;
  /// The number of the next epoch.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  struct Epoch;

  int64_t size_;
  DistributedSamplerOptions options_;
  int64_t valid_count_;
  int64_t count_;
  int64_t next_epoch_ = 0;
  std::unique_ptr<Epoch> epoch_;
};

/// A random permutation of 0 .. size - 1, a new one each epoch, in no more memory than a few
/// hundred KB: each index is computed from its position and the epoch's key, which is drawn from
/// the generator (torch's default one, if absent) at the first `next`. For datasets of so many
/// samples that the 8 bytes per sample and the time of RandomSampler matter.
///
/// Up to 65,536 samples, the order is that of `torch.randperm` with the key as its seed: every
/// permutation is as likely as any other. Beyond, it is one of 2^64, made by eight rounds of a
/// Feistel network; no test that we know of tells it from a random one, but who knows some of it
/// can find out the rest, so it must not guard a secret. Python has nothing like it.
class KeyedRandomSampler final : public Sampler<int64_t> {
 public:
  static constexpr int64_t kMostSamples = int64_t{1} << 62;

  /// Throws `std::invalid_argument` if `size` is negative or above 2^62.
  explicit KeyedRandomSampler(int64_t size, std::optional<at::Generator> generator = std::nullopt);
  ~KeyedRandomSampler() override;

  void reset() override;
  std::optional<int64_t> next() override;
  std::optional<int64_t> size() const override { return size_; }
  /// Takes no longer for many than for one.
  void skip(int64_t n) override;
  /// The state of the generator that it draws keys from.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  struct Epoch;
  void begin();

  int64_t size_;
  std::optional<at::Generator> generator_;
  std::unique_ptr<Epoch> epoch_;
};

}  // namespace stoker
