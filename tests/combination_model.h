// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Which batches a loader yields, and where it fails: a serial model, written from the documents
// alone. It knows indices; the bytes are compared with a loader that nothing disturbs.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "combination.h"

namespace stoker::combination {

struct ModelBatch {
  Numbers indices;
  Numbers failing;  // those whose error ends the epoch here, the lowest row first
};

struct ModelEpoch {
  std::vector<ModelBatch> batches;
  Number errors_least = 0, errors_most = 0;  // skipped or replaced: up to the last batch, in all
};

class Model {
 public:
  explicit Model(const Combination& c) : c_(c), bad_(c.bad) {
    bad_.insert(bad_.end(), c.killers.begin(), c.killers.end());
  }

  // The next epoch.
  ModelEpoch epoch() {
    draw_seed(loader_);  // Python's order: the base seed, then what the sampler draws
    ModelEpoch epoch;
    if (c_.dataset == kStream) return take_turns(epoch), epoch;
    if (c_.order != kBatches) return cut(epoch, order()), epoch;
    for (const Numbers& batch : batches_of(c_)) add(epoch, batch);
    return epoch;
  }

 private:
  bool is_bad(Number index) const { return std::count(bad_.begin(), bad_.end(), index) > 0; }
  static int64_t draw_seed(at::Generator& generator) {
    return at::empty({}, at::kLong).random_(generator).item<int64_t>();
  }
  static at::Generator seeded(int64_t seed) {
    return at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
  }
  static Numbers numbers(const at::Tensor& tensor) {
    const auto* first = tensor.const_data_ptr<int64_t>();
    return {first, first + tensor.numel()};
  }

  // As RandomSampler and SubsetRandomSampler of torch.utils.data.
  Numbers order() {
    if (c_.order == kRepeats) return repeats_of(c_);
    if (c_.order == kAscending || c_.order == kSequential) return numbers(at::arange(c_.samples));
    const bool given = c_.source != kDefaultGenerator;
    at::Generator& source = given && c_.order != kShuffle ? sampler_ : loader_;
    Numbers all;
    if (const Numbers subset = subset_of(c_); c_.order == kSubset) {
      all = numbers(at::randperm(static_cast<int64_t>(subset.size()), source));
      for (Number& index : all) index = subset[static_cast<size_t>(index)];
      return all;
    }
    at::Generator generator = given ? source : seeded(draw_seed(source));
    if (c_.order == kShuffle) {
      all = numbers(at::randperm(c_.samples, generator));
      at::randperm(c_.samples, generator);  // Python's draws one more, when it runs out
      return all;
    }
    for (Number left = c_.samples; left > 0; left -= 32) {
      const int64_t count = std::min<int64_t>(left, 32);
      const Numbers some = numbers(at::randint(c_.samples, {count}, generator));
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  // kSkip: those that fail are left out, and all behind them move up.
  void cut(ModelEpoch& epoch, const Numbers& order) {
    Numbers batch;
    const auto finish = [&] {
      if (c_.on_error == kSkip) epoch.errors_least = epoch.errors_most;
      add(epoch, std::exchange(batch, {}));
    };
    for (const Number index : order) {
      const bool skipped = c_.on_error == kSkip && is_bad(index);
      if (skipped) ++epoch.errors_most;
      if (!skipped) batch.push_back(index);
      if (static_cast<Number>(batch.size()) == c_.batch_size) finish();
    }
    if (!batch.empty() && c_.drop_last == 0) finish();
  }

  void add(ModelEpoch& epoch, const Numbers& before) {
    Numbers batch = before, failing;
    for (size_t row = 0; row < batch.size(); ++row) {
      const Number index = before[row];
      const bool flaky = c_.dataset == kBatched && before.size() > 1 &&
                         std::count(c_.flaky.begin(), c_.flaky.end(), index) > 0;
      if (c_.on_error == kRaise && (is_bad(index) || flaky)) failing.push_back(index);
      if (c_.on_error != kSubstitute || !is_bad(index)) continue;
      size_t step = 1;  // to the next of the batch that does not fail
      while (step < before.size() && is_bad(before[(row + step) % before.size()])) ++step;
      if (step == before.size()) failing = before;
      batch[row] = before[(row + step) % before.size()];
      ++epoch.errors_least;
      ++epoch.errors_most;
    }
    epoch.batches.push_back({batch, failing});
  }

  // The workers by turns, each with its share of a stream.
  void take_turns(ModelEpoch& epoch) {
    const Number workers = std::max<Number>(c_.num_workers, 1);
    std::vector<std::vector<Numbers>> shares(static_cast<size_t>(workers));
    for (Number i = 0; i < c_.samples; ++i) {
      const Number key = c_.shard == 2 ? i / c_.batch_size : i;
      auto& share = shares[static_cast<size_t>(key % workers)];
      if (share.empty() || static_cast<Number>(share.back().size()) == c_.batch_size) {
        share.emplace_back();
      }
      share.back().push_back(i);
    }
    for (size_t turn = 0; turn <= static_cast<size_t>(c_.samples); ++turn) {
      for (const auto& share : shares) {
        if (turn >= share.size()) continue;
        const bool is_short = static_cast<Number>(share[turn].size()) < c_.batch_size;
        add(epoch, share[turn]);
        const bool fails = !epoch.batches.back().failing.empty();
        if (is_short && c_.drop_last != 0 && !fails) epoch.batches.pop_back();
      }
    }
  }

  Combination c_;
  Numbers bad_;
  at::Generator loader_ = seeded(c_.salt);
  at::Generator sampler_ = seeded(c_.salt + 1);
};

}  // namespace stoker::combination
