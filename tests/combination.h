// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A whole configuration of a loader and of what happens to it: drawn from a seed, printed, made
// smaller. Every field is a number or a list of numbers, so that all of them are treated alike.

#include <algorithm>
#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace stoker::combination {

using Number = int64_t;
using Numbers = std::vector<int64_t>;

enum DatasetKind : Number { kMap, kBatched, kStream };
// int64; (tensor, int64); a struct of more; the rows of a TensorDataset, which it writes itself
enum SampleKind : Number { kIndex, kPair, kItem, kRows };
enum Randomness : Number { kNoRandomness, kTorch, kRand, kSeed };
enum Memory : Number { kFresh, kView, kSame };  // of a sample's tensor; kSame: of all samples
enum Order : Number {
  kAscending,
  kShuffle,
  kSequential,
  kReplacement,
  kSubset,
  kRepeats,
  kBatches
};
enum Source : Number { kDefaultGenerator, kGenerator, kOwnSeed };
enum Errors : Number { kRaise, kSkip, kSubstitute };
enum CollateKind : Number { kStack, kPad, kFunction, kConvert };
enum End : Number { kKill, kExit, kHang };  // of a worker
enum Invalid : Number {
  kValid,
  kSkipOutOfOrder,
  kSkipBatchSampler,
  kSubstituteOne,
  kStreamOnError,
  kStreamShuffle,
  kTimeoutWithoutWorkers,
  kSkipPaddedReplicas,
  kInvalidCount
};

struct Combination {
  Number salt = 1;  // of all data and generators
  Number dataset = kMap;
  Number sample = kPair;
  Number width = 4;  // floats of a sample's tensor
  Number varying = 0;
  Number random = kNoRandomness;
  Number memory = kFresh;
  Number samples = 8;
  Number epochs = 1;
  Number batch_size = 2;
  Number order = kAscending;
  Number source = kDefaultGenerator;
  Number drop_last = 0;
  Number num_workers = 0;
  Number prefetch_factor = 0;  // 0: absent
  Number persistent_workers = 1;
  Number in_order = 1;
  Number on_error = kRaise;
  Numbers bad;      // these throw
  Numbers flaky;    // these throw in a get_batch of more than one sample
  Numbers killers;  // these end their worker, each time
  Number killers_end = kKill;
  Numbers accidents;  // calls, counted over all workers, that end their worker
  Number accidents_end = kKill;
  Number slow = -1;  // takes 15 ms
  Number collate = kStack;
  Number collate_draws = 0;
  Number limit_mb = 0;  // 0: absent
  Number pin_memory = 0;
  Number device = 0;
  Number keep = 0;  // batches kept alive
  Number shard = 0;
  Number stream_skips = 0;
  Number stream_has_state = 0;
  Number state_throws_at = 0;  // position from which the stream's state_dict() throws; 0: never
  Number leave_epoch = -1;
  Number leave_after = 1;
  Numbers stop_after;  // batches of each loader after which the next one goes on
  Number stop_behind = 0;  // at the end of an epoch: behind the loop
  Number stop_workers = 0;
  Number stop_prefetch = 0;
  Number stop_persistent = 1;
  Number invalid = kValid;

  bool operator==(const Combination&) const = default;
};

// Calls visit(name, field) for each.
template <class Of, class Visit>
void visit_fields(Of& c, Visit&& visit) {
#define FIELD(name) visit(#name, c.name)
  FIELD(salt), FIELD(dataset), FIELD(sample), FIELD(width), FIELD(varying), FIELD(random);
  FIELD(memory), FIELD(samples), FIELD(epochs), FIELD(batch_size), FIELD(order), FIELD(source);
  FIELD(drop_last), FIELD(num_workers), FIELD(prefetch_factor), FIELD(persistent_workers);
  FIELD(in_order), FIELD(on_error), FIELD(bad), FIELD(flaky), FIELD(killers), FIELD(killers_end);
  FIELD(accidents), FIELD(accidents_end), FIELD(slow), FIELD(collate), FIELD(collate_draws);
  FIELD(limit_mb), FIELD(pin_memory), FIELD(device), FIELD(keep), FIELD(shard);
  FIELD(stream_skips), FIELD(stream_has_state), FIELD(state_throws_at), FIELD(leave_epoch);
  FIELD(leave_after), FIELD(stop_after), FIELD(stop_behind), FIELD(stop_workers);
  FIELD(stop_prefetch), FIELD(stop_persistent), FIELD(invalid);
#undef FIELD
}

// The name of a field's value, where it has one.
inline std::string text_of(const std::string& name, Number value) {
  const auto pick = [&](std::vector<const char*> names) {
    return value >= 0 && value < static_cast<Number>(names.size())
               ? names[static_cast<size_t>(value)]
               : "?";
  };
  if (name == "dataset") return pick({"kMap", "kBatched", "kStream"});
  if (name == "sample") return pick({"kIndex", "kPair", "kItem", "kRows"});
  if (name == "random") return pick({"kNoRandomness", "kTorch", "kRand", "kSeed"});
  if (name == "memory") return pick({"kFresh", "kView", "kSame"});
  if (name == "order") {
    return pick({"kAscending", "kShuffle", "kSequential", "kReplacement", "kSubset", "kRepeats",
                 "kBatches"});
  }
  if (name == "source") return pick({"kDefaultGenerator", "kGenerator", "kOwnSeed"});
  if (name == "on_error") return pick({"kRaise", "kSkip", "kSubstitute"});
  if (name == "collate") return pick({"kStack", "kPad", "kFunction", "kConvert"});
  if (name == "shard") return pick({"Shard::kNone", "Shard::kSamples", "Shard::kBatches"});
  if (name == "killers_end" || name == "accidents_end") return pick({"kKill", "kExit", "kHang"});
  if (name == "invalid") {
    return pick({"kValid", "kSkipOutOfOrder", "kSkipBatchSampler", "kSubstituteOne",
                 "kStreamOnError", "kStreamShuffle", "kTimeoutWithoutWorkers",
                 "kSkipPaddedReplicas"});
  }
  return std::to_string(value);
}
inline std::string text_of(const std::string&, const Numbers& values) {
  std::string text = "{";
  for (const Number value : values) text += (text.size() > 1 ? ", " : "") + std::to_string(value);
  return text + "}";
}

// What differs from the defaults, as designated initialisers.
inline std::string describe(const Combination& c) {
  const Combination usual;
  std::string text;
  std::vector<std::string> defaults;
  visit_fields(usual,
               [&](const char* name, const auto& v) { defaults.push_back(text_of(name, v)); });
  size_t i = 0;
  visit_fields(c, [&](const char* name, const auto& value) {
    const std::string now = text_of(name, value);
    if (now == defaults[i++]) return;
    text += (text.empty() ? "." : ", .") + std::string(name) + " = " + now;
  });
  return "{" + text + "}";
}

// What the samplers that are given yield.
inline Numbers repeats_of(const Combination& c) {
  std::mt19937_64 engine(static_cast<uint64_t>(c.salt));
  Numbers all(static_cast<size_t>(c.samples));
  for (Number& index : all) index = static_cast<Number>(engine() % all.size());
  return all;
}
inline Numbers subset_of(const Combination& c) {
  Numbers all;
  for (Number i = 0; i < c.samples; ++i) {
    if (i % 3 != 1) all.push_back(i);
  }
  return all;
}
inline std::vector<Numbers> batches_of(const Combination& c) {
  std::vector<Numbers> all;
  for (const Number index : repeats_of(c)) {
    if (all.empty() || index % 4 == 0 || all.back().size() == 9) all.emplace_back();
    all.back().push_back(index);
  }
  return all;
}

// What the documents do not allow together, or say nothing of, is taken out.
inline void normalise(Combination& c) {
  const bool stream = c.dataset == kStream;
  const auto in_range = [&](Numbers& indices) {
    std::erase_if(indices, [&](Number index) { return index >= c.samples; });
  };
  const auto keep_first = [](Numbers& numbers) {
    while (numbers.size() > 1) numbers.pop_back();
  };
  in_range(c.bad), in_range(c.flaky), in_range(c.killers);
  if (c.slow >= c.samples) c.slow = -1;
  if (c.sample == kRows && c.dataset != kBatched) c.sample = kPair;
  if (c.sample == kRows) c.random = kNoRandomness, c.varying = 0;
  if (c.sample == kIndex) c.varying = 0, c.memory = kFresh;
  if (c.varying != 0 && c.collate == kStack) c.collate = kPad;
  if (c.collate == kPad && c.sample == kIndex) c.collate = kStack;
  if (c.collate == kConvert) c.batch_size = 1, c.drop_last = 0;
  if (c.varying != 0 || c.random != kNoRandomness || c.dataset != kMap) c.memory = kFresh;
  if (c.collate != kFunction) c.collate_draws = 0;
  if (stream) {
    c.on_error = kRaise, c.order = kAscending, c.killers.clear(), c.flaky.clear();
    if (c.collate == kPad) c.varying = 0, c.collate = kStack;
    if (c.collate == kConvert) c.collate = kStack;
    if (c.shard != 0 && c.num_workers > 1) c.bad.clear();  // others pass over it, or do not
    keep_first(c.accidents);  // two may hit one batch
    if (c.state_throws_at > 0) {
      const Number share = c.samples / std::max<Number>(c.num_workers, 1);
      c.stream_has_state = 1, c.bad.clear(), c.stop_after.clear();
      c.state_throws_at = std::min(c.state_throws_at, share / c.batch_size * c.batch_size);
    }
  } else {
    c.shard = c.stream_skips = c.stream_has_state = c.state_throws_at = 0;
  }
  if (c.dataset != kBatched) c.flaky.clear();
  if (c.order == kBatches) {
    c.drop_last = 0, c.batch_size = 1;
    if (c.on_error == kSkip) c.on_error = kSubstitute;
    if (c.collate == kConvert) c.collate = c.varying != 0 ? kPad : kStack;
  } else if (c.on_error == kSubstitute && c.batch_size == 1) {
    c.on_error = kSkip;
  }
  if (c.on_error == kSkip) c.in_order = 1;
  if (c.num_workers == 0) {
    c.prefetch_factor = 0, c.killers.clear(), c.accidents.clear();
  }
  if (c.on_error == kRaise && !c.bad.empty()) c.killers.clear();  // which is told first?
  if (c.on_error == kRaise && c.dataset == kBatched) keep_first(c.accidents);
  if (c.killers.empty()) c.killers_end = kKill;
  if (c.accidents.empty()) c.accidents_end = kKill;
  if (c.leave_epoch < 0 || c.leave_epoch >= c.epochs) c.leave_epoch = -1, c.leave_after = 1;
  if (c.stop_after.empty()) {
    c.stop_behind = c.stop_workers = c.stop_prefetch = 0, c.stop_persistent = 1;
  }
  if (stream && !c.stop_after.empty()) c.stop_workers = c.num_workers;
  if (c.stop_workers == 0) c.stop_prefetch = 0;
}

inline Combination draw(uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto upto = [&](Number n) { return static_cast<Number>(engine() % uint64_t(n)); };
  const auto one_in = [&](Number n) { return upto(n) == 0; };
  const auto range = [&](Number low, Number high) { return low + upto(high - low + 1); };
  Combination c;
  const auto some = [&](Number most) {
    Numbers all;
    for (Number n = range(1, most); n > 0; --n) all.push_back(upto(c.samples));
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  };
  c.salt = range(1, 1'000'000);
  c.dataset = upto(3);
  c.sample = upto(4);
  c.width = one_in(4) ? 10'000 : range(1, 128);
  c.varying = one_in(4);
  c.random = upto(4);
  c.memory = upto(3);
  c.samples = one_in(20) ? range(1, 3) : range(4, 60);
  c.epochs = range(1, 3);
  c.batch_size = range(1, 9);
  c.order = one_in(2) ? range(0, 1) : upto(7);
  c.source = upto(3);
  c.drop_last = one_in(3);
  c.num_workers = one_in(6) ? 0 : range(1, 4);
  c.prefetch_factor = one_in(2) ? 0 : range(1, 3);
  c.persistent_workers = !one_in(3);
  c.in_order = !one_in(4);
  c.on_error = one_in(2) ? Number(kRaise) : range(1, 2);
  if (c.on_error != kRaise ? !one_in(4) : one_in(8)) c.bad = some(c.on_error == kRaise ? 2 : 6);
  if (one_in(5)) c.flaky = some(2);
  if (one_in(12)) c.killers = some(2);
  c.killers_end = one_in(12) ? Number(kHang) : upto(2);
  if (one_in(3)) {
    for (Number n = range(1, 3), at = 0; n > 0; --n) {
      c.accidents.push_back(at += one_in(2) ? range(1, 3) : range(1, c.samples));
    }
  }
  c.accidents_end = one_in(12) ? Number(kHang) : upto(2);
  if (one_in(6)) c.slow = upto(c.samples);
  c.collate = one_in(2) ? Number(kStack) : upto(4);
  c.collate_draws = one_in(2);
  if (one_in(6)) c.limit_mb = one_in(2) ? 32 : 128;
  c.pin_memory = one_in(5);
  c.device = one_in(4);
  if (one_in(4)) c.keep = range(1, 2);
  c.shard = upto(3);
  c.stream_skips = upto(2);
  c.stream_has_state = upto(2);
  if (one_in(10)) c.state_throws_at = range(1, 1 + c.samples / 4);
  if (one_in(5)) c.leave_epoch = upto(c.epochs), c.leave_after = range(1, 6);
  if (one_in(3)) {
    for (Number n = range(1, 2); n > 0; --n) {
      const Number batches = c.samples / c.batch_size;  // near the end of an epoch, or anywhere
      c.stop_after.push_back(one_in(2) ? std::max<Number>(batches - upto(4), 1)
                                       : range(1, 1 + c.epochs * batches / 2));
    }
  }
  c.stop_behind = upto(2);
  c.stop_workers = upto(5);
  c.stop_prefetch = one_in(2) ? 0 : range(1, 3);
  c.stop_persistent = upto(2);
  if (one_in(60)) c.invalid = range(1, kInvalidCount - 1);
  normalise(c);
  return c;
}

// Smaller ones, the boldest steps first.
inline std::vector<Combination> smaller(const Combination& c) {
  std::vector<Combination> all;
  const auto add = [&](Combination less) {
    normalise(less);
    if (less != c && std::find(all.begin(), all.end(), less) == all.end()) all.push_back(less);
  };
  const auto with = [&](auto Combination::*field, auto value) {
    Combination less = c;
    less.*field = value;
    add(less);
  };
  with(&Combination::samples, (c.samples + 1) / 2);
  with(&Combination::epochs, Number{1});
  for (const auto field : {&Combination::bad, &Combination::flaky, &Combination::killers,
                           &Combination::accidents, &Combination::stop_after}) {
    with(field, Numbers{});
    if (!(c.*field).empty()) {
      const auto middle = (c.*field).begin() + static_cast<int64_t>((c.*field).size()) / 2;
      with(field, Numbers((c.*field).begin(), middle));
      with(field, Numbers(middle, (c.*field).end()));
    }
  }
  const Combination usual;
  std::vector<Number> defaults;
  visit_fields(usual, [&](const char*, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Number>) defaults.push_back(value);
  });
  for (size_t i = 0; i < defaults.size(); ++i) {
    Combination less = c;
    size_t at = 0;
    visit_fields(less, [&](const char* name, auto& value) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Number>) {
        if (at++ == i && std::string(name) != "samples") value = defaults[i];
      }
    });
    add(less);
  }
  with(&Combination::num_workers, (c.num_workers + 1) / 2);
  with(&Combination::batch_size, (c.batch_size + 1) / 2);
  with(&Combination::samples, c.samples - 1 > 0 ? c.samples - 1 : 1);
  return all;
}

}  // namespace stoker::combination
