// SPDX-License-Identifier: BSD-3-Clause

// Promise: the bytes of batch k of epoch e depend only on (dataset, options, seed, e, k). Every way
// to run the same job must give the digests below; they are written down, so that also builds of
// different kinds are held to them.

#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/types.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <tuple>

#include "datasets.h"
#include "digest.h"

namespace stoker {
namespace {

template <class Dataset>
uint64_t digest_of(const Dataset& dataset, DataLoaderOptions options) {
  options.batch_size = 16;
  options.seed = 1234;
  DataLoader loader(dataset, options);
  Digest digest;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& [values, number] : loader) {
      digest.add(values);
      digest.add(number);
    }
  }
  return digest.value();
}

template <class Dataset>
void expect_digest(const Dataset& dataset, uint64_t expected, bool shuffle = true) {
  EXPECT_EQ(digest_of(dataset, {.shuffle = shuffle}), expected) << "no workers";
  for (const int64_t workers : {1, 2, 4, 8}) {
    for (const int64_t prefetch : {1, 2, 8}) {
      for (const bool persistent : {true, false}) {
        EXPECT_EQ(digest_of(dataset, {.shuffle = shuffle,
                                      .num_workers = workers,
                                      .prefetch_factor = prefetch,
                                      .persistent_workers = persistent}),
                  expected)
            << workers << " workers, prefetch_factor " << prefetch
            << (persistent ? ", persistent" : "");
      }
    }
  }
}

at::Tensor base(size_t index) { return at::arange(8) + static_cast<int64_t>(index); }

TEST(DigestTest, DrawsOfTorchAndOfRand) {
  const auto augmented = [](size_t index) {
    return std::tuple(base(index) + at::rand({8}), int64_t{std::rand()});
  };
  expect_digest(Made{300, augmented}, 14235108107665945402u);
}

TEST(DigestTest, NormalDrawsWhichComeInPairs) {
  const auto noisy = [](size_t index) {
    return std::tuple(base(index) + at::randn({1}, at::kDouble), static_cast<int64_t>(index));
  };
  expect_digest(Made{300, noisy}, 3010809174181272436u);
}

TEST(DigestTest, DrawsOfSomeSamplesOnly) {
  const auto rare = [](size_t index) {
    if (index % 50 == 17) return std::tuple(base(index) + at::rand({8}), int64_t{std::rand()});
    return std::tuple(base(index).to(at::kFloat), int64_t{0});
  };
  expect_digest(Made{300, rare}, 11241668105030225245u);
}

// In order, so that no sample draws before the workers have found that the dataset does not.
TEST(DigestTest, DrawsThatBeginLate) {
  const auto late = [](size_t index) {
    if (index < 600) return std::tuple(base(index).to(at::kFloat), int64_t{0});
    return std::tuple(base(index) + at::rand({8}), int64_t{std::rand()});
  };
  expect_digest(Made{800, late}, 479647959775149763u, false);
}

TEST(DigestTest, DrawsOfAGeneratorSeededWithTheSamplesSeed) {
  const auto own = [](size_t index) {
    std::mt19937 generator(static_cast<uint32_t>(worker_info().value().seed));
    return std::tuple(base(index) + static_cast<int64_t>(generator() % 1000),
                      static_cast<int64_t>(generator()));
  };
  expect_digest(Made{300, own}, 17495580558717225432u);
}

}  // namespace
}  // namespace stoker
