// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Generator.h>
#include <stoker/state_dict.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace stoker {

/// Yields the keys of one epoch after another: indices (`Sampler<int64_t>`), or the indices of
/// whole batches (`Sampler<std::vector<int64_t>>`). Derive from it for an order of your own.
/// Compare `torch.utils.data.Sampler`.
///
/// Process safety: used in the main process only, by the thread that iterates over the loader.
/// The loader runs ahead of its consumer; how far, see `prefetch_factor`.
template <class Key>
class Sampler {
 public:
  virtual ~Sampler() = default;

  /// Starts an epoch. Called once before the first `next` of each.
  virtual void reset() = 0;

  /// The next key of this epoch; nothing at its end, and from then on until `reset`.
  virtual std::optional<Key> next() = 0;

  /// How many keys an epoch has, where that is known.
  virtual std::optional<int64_t> size() const = 0;

  /// Leaves out the next `n` keys of this epoch, or what is left of it. The loader calls it to
  /// resume; override it where that can be done without looking at each.
  virtual void skip(int64_t n) {
    while (n > 0 && next()) --n;
  }

  /// What the keys of the next epoch, and of all later ones, depend on: the state of a generator of
  /// its own, a count of epochs. The loader calls it before `reset`, and keeps it for its own
  /// `state_dict`. A sampler that yields the same keys each epoch needs none.
  virtual StateDict state_dict() const { return {}; }
  /// Makes the next `reset` begin the epoch before which `state_dict` was called. Throws
  /// `std::invalid_argument` for a state of something else.
  virtual void load_state_dict(const StateDict&) {}
};

/// 0, 1, .. size - 1. Compare `torch.utils.data.SequentialSampler`.
class SequentialSampler final : public Sampler<int64_t> {
 public:
  /// Throws `std::invalid_argument` if `size` is negative.
  explicit SequentialSampler(int64_t size);

  void reset() override;
  std::optional<int64_t> next() override;
  std::optional<int64_t> size() const override { return size_; }
  void skip(int64_t n) override { next_ += std::min(n, size_ - next_); }

 private:
  int64_t size_;
  int64_t next_ = 0;
};

/// A random permutation of 0 .. size - 1, a new one each epoch, or indices drawn with replacement,
/// in exactly the order of `torch.utils.data.RandomSampler`: with a generator they are drawn from
/// that one; without, a seed is drawn from torch's default generator. Either way, all that a whole
/// epoch draws from there is drawn at its first `next`, also if the epoch is left early.
///
/// One order is not Python's: where an epoch is more than a single permutation and takes more than
/// 2^28 draws, only a seed is drawn from the given generator, as without one. So the first index
/// comes at once, however great `num_samples` is. (Python draws from the generator as it goes; then
/// one left early would be wherever the loader had run ahead to.)
///
/// Memory: without replacement 8 bytes per sample; the first `next` throws `std::runtime_error` if
/// there is not enough. KeyedRandomSampler needs none.
class RandomSampler final : public Sampler<int64_t> {
 public:
  /// Throws `std::invalid_argument` if `size` is negative. Size 0 is an empty epoch (Python
  /// refuses it).
  explicit RandomSampler(int64_t size, std::optional<at::Generator> generator = std::nullopt);
  /// With `replacement`, each index is drawn among all. `num_samples` is the length of an epoch,
  /// `size` if absent; where it is greater and `replacement` false, one permutation follows another
  /// and the last is cut off. Throws `std::invalid_argument` if `size` is negative, if
  /// `num_samples` is not positive, or if there is nothing to draw them from.
  RandomSampler(int64_t size, bool replacement, std::optional<int64_t> num_samples = std::nullopt,
                std::optional<at::Generator> generator = std::nullopt);
  ~RandomSampler() override;

  void reset() override;
  std::optional<int64_t> next() override;
  std::optional<int64_t> size() const override { return num_samples_; }
  void skip(int64_t n) override;
  /// The state of the generator it draws from: the given one, or torch's default generator, which
  /// `load_state_dict` sets.
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  struct Epoch;
  void begin();
  void begin_next_permutation();

  int64_t size_;
  bool replacement_;
  int64_t num_samples_;
  std::optional<at::Generator> generator_;
  std::unique_ptr<Epoch> epoch_;
};

/// Groups the indices of another sampler. Compare `torch.utils.data.BatchSampler`.
class BatchSampler final : public Sampler<std::vector<int64_t>> {
 public:
  /// `drop_last` leaves out a last batch of fewer than `batch_size` indices. Throws
  /// `std::invalid_argument` if `batch_size` is not positive or `sampler` is null.
  BatchSampler(std::shared_ptr<Sampler<int64_t>> sampler, int64_t batch_size, bool drop_last);

  void reset() override;
  std::optional<std::vector<int64_t>> next() override;
  std::optional<int64_t> size() const override;
  void skip(int64_t n) override;
  StateDict state_dict() const override { return sampler_->state_dict(); }
  void load_state_dict(const StateDict& state) override { sampler_->load_state_dict(state); }

 private:
  std::shared_ptr<Sampler<int64_t>> sampler_;
  int64_t batch_size_;
  bool drop_last_;
};

}  // namespace stoker
