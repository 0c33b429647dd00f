// SPDX-License-Identifier: BSD-3-Clause

// Samplers and splits yield exactly what Python's do (parity/make_golden.py).

#include "parity.h"

#include <gtest/gtest.h>
#include <stoker/datasets/subset.h>

#include "datasets.h"
#include "samplers.h"

namespace stoker {
namespace {

TEST(ParityTest, SamplersYieldPythonsIndices) {
  for (const Json& json : golden("samplers")) {
    if (drawn_by_mkl(json) && !at::hasMKL()) continue;
    const auto sampler = sampler_of_case(json, generator_of(json));
    for (const Json& expected : json["epochs"]) {
      EXPECT_EQ(sampler->size(), static_cast<int64_t>(expected.size()));
      ASSERT_EQ(epoch(*sampler), expected.get<Numbers>()) << json;
    }
  }
}

TEST(ParityTest, RanksGetPythonsShares) {
  for (const Json& json : golden("distributed")) {
    for (int64_t rank = 0; rank < json["num_replicas"]; ++rank) {
      DistributedSampler sampler(json["size"], {.num_replicas = json["num_replicas"],
                                                .rank = rank,
                                                .shuffle = json["shuffle"],
                                                .seed = json["seed"],
                                                .drop_last = json["drop_last"]});
      for (const Json& ranks : json["epochs"]) {  // with set_epoch there, by themselves here
        const auto expected = ranks[static_cast<size_t>(rank)].get<Numbers>();
        EXPECT_EQ(sampler.size(), static_cast<int64_t>(expected.size()));
        ASSERT_EQ(epoch(sampler), expected) << json;
      }
    }
  }
}

TEST(ParityTest, BatchSamplersMakePythonsBatches) {
  for (const Json& json : golden("batch_samplers")) {
    BatchSampler sampler(std::make_shared<SequentialSampler>(json["size"].get<int64_t>()),
                         json["batch_size"], json["drop_last"]);
    std::vector<size_t> sizes;
    for (const Numbers& batch : epoch(sampler)) sizes.push_back(batch.size());
    EXPECT_EQ(sampler.size(), json["length"].get<int64_t>()) << json;
    EXPECT_EQ(sizes, json["sizes"].get<std::vector<size_t>>()) << json;
  }
}

TEST(ParityTest, RandomSplitMakesPythonsParts) {
  for (const Json& json : golden("splits")) {
    const bool counts = json["lengths"][0].is_number_integer();
    const SplitLengths lengths = counts ? SplitLengths(json["lengths"].get<std::vector<int64_t>>())
                                        : SplitLengths(json["lengths"].get<std::vector<double>>());
    const Counting dataset{json["size"].get<size_t>()};
    const auto parts = random_split(dataset, lengths, generator_of(json));
    ASSERT_EQ(parts.size(), json["parts"].size());
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i].indices(), json["parts"][i].get<Numbers>()) << json;
    }
  }
}

// In Python one epoch's workers each; here they stay.
TEST(ParityTest, LoadersYieldPythonsBatches) {
  for (const Json& json : golden("loaders")) {
    if (drawn_by_mkl(json) && !at::hasMKL()) continue;
    const auto generator = generator_of(json);
    DataLoader loader(
        Counting{json["size"].get<size_t>()},
        {.batch_size = json["batch_size"],
         .shuffle = json["shuffle"],
         .sampler = json.contains("sampler") ? sampler_of_case(json, generator) : nullptr,
         .num_workers = json["num_workers"],
         .drop_last = json["drop_last"],
         .generator = generator});
    EXPECT_EQ(loader.size(), json["length"].get<size_t>());
    for (const Json& expected : json["epochs"]) {
      ASSERT_EQ(batches_of(loader), expected.get<std::vector<Numbers>>()) << json;
    }
  }
}

// Worker w's samples are 100 w, 100 w + 1, ..
struct Lengths {
  std::vector<int64_t> of_worker;

  struct Stream {
    int64_t number;
    int64_t end;
    std::optional<int64_t> next() { return number == end ? std::nullopt : std::optional(number++); }
  };
  Stream stream() const {
    const int64_t id = worker_info().value().id;
    return {100 * id, 100 * id + of_worker.at(static_cast<size_t>(id))};
  }
};

template <class Loader>
void expect_batches(Loader&& loader, const Json& json) {
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(batches_of(loader), json["batches"].get<std::vector<Numbers>>()) << json;
  }
}

TEST(ParityTest, StreamsComeFromTheWorkersAsInPython) {
  for (const Json& json : golden("streams")) {
    const Lengths dataset{json["lengths"].get<std::vector<int64_t>>()};
    DataLoaderOptions options{.num_workers = json["num_workers"], .drop_last = json["drop_last"]};
    if (json["batch_size"].is_null()) {
      // The sample itself, a number.
      DataLoader loader(dataset, options, DefaultConvert{});
      std::vector<Numbers> all;
      for (const int64_t number : loader) all.push_back({number});
      EXPECT_EQ(all, json["batches"].get<std::vector<Numbers>>()) << json;
    } else {
      options.batch_size = json["batch_size"];
      expect_batches(DataLoader(dataset, options), json);
    }
  }
}

}  // namespace
}  // namespace stoker
