// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The golden files that parity/make_golden.py wrote, and samplers as they ask for them.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <stoker/samplers.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace stoker {

using Json = nlohmann::json;

inline Json golden(const std::string& name) {
  std::ifstream file(STOKER_PARITY_DIR "/" + name + ".json");
  return Json::parse(file);
}

// A generator of the case's seed, or nothing after torch's default one was seeded.
inline std::optional<at::Generator> generator_of(const Json& json) {
  const auto seed = json["seed"].get<uint64_t>();
  if (json["own_generator"]) return at::make_generator<at::CPUGeneratorImpl>(seed);
  at::manual_seed(seed);
  return std::nullopt;
}

// WEIGHTS of make_golden.py.
inline std::vector<double> golden_weights() { return {.1, .9, .4, 0, .7, 3, .6, 1e-9, 12.25}; }

inline std::shared_ptr<Sampler<int64_t>> sampler_of_case(const Json& json,
                                                         std::optional<at::Generator> generator) {
  const std::string kind = json["sampler"];
  const auto num_samples = [&]() -> std::optional<int64_t> {
    if (json["num_samples"].is_null()) return std::nullopt;
    return json["num_samples"].get<int64_t>();
  };
  if (kind == "sequential") return std::make_shared<SequentialSampler>(json["size"]);
  if (kind == "subset") {
    return std::make_shared<SubsetRandomSampler>(json["indices"].get<std::vector<int64_t>>(),
                                                 generator);
  }
  if (kind == "random") {
    return std::make_shared<RandomSampler>(
        json["size"].get<int64_t>(), json["replacement"].get<bool>(), num_samples(), generator);
  }
  if (kind == "weighted") {
    return std::make_shared<WeightedRandomSampler>(golden_weights(), num_samples().value(),
                                                   json["replacement"].get<bool>(), generator);
  }
  throw std::invalid_argument(kind);
}

// Of weights without replacement (and of a single one), torch draws all at once, and not in the
// same way with MKL and without it, which Python's had.
inline bool drawn_by_mkl(const Json& json) {
  return json.value("sampler", "") == "weighted" &&
         (!json["replacement"] || json["num_samples"] == 1);
}

}  // namespace stoker
