// SPDX-License-Identifier: BSD-3-Clause

// Batches that are something else than stacked samples.

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "datasets.h"

namespace stoker {

struct Passport {
  at::Tensor image;
  std::string name;
  bool smiles = false;
};
template <>
struct SampleTraits<Passport> {
  static auto fields(const Passport& face) { return std::tie(face.image, face.name, face.smiles); }
};

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

at::Tensor line(int64_t length, int64_t value) { return at::full({length}, value, at::kLong); }

// Tensors of 1, 2, 3, .. elements.
auto growing(size_t count) {
  return Made{count,
              [](size_t i) { return line(static_cast<int64_t>(i) + 1, static_cast<int64_t>(i)); }};
}

TEST(CollateFnTest, GetsTheSamplesInOrderAndMakesTheBatch) {
  const auto sums = [](const std::vector<at::Tensor>& samples) {
    std::vector<int64_t> all;
    for (const at::Tensor& sample : samples) all.push_back(sample.sum().item<int64_t>());
    return std::pair(all, std::to_string(samples.size()));
  };
  for (const int64_t workers : {0, 1, 3}) {
    DataLoader loader(growing(5), {.batch_size = 2, .num_workers = workers}, sums);
    std::vector<std::pair<std::vector<int64_t>, std::string>> batches;
    for (auto& batch : loader) batches.push_back(batch);
    EXPECT_THAT(batches, ElementsAre(std::pair(Numbers{0, 2}, "2"), std::pair(Numbers{6, 12}, "2"),
                                     std::pair(Numbers{20}, "1")))
        << workers;
  }
}

TEST(CollateFnTest, RunsInTheWorker) {
  const auto who = [](const std::vector<int64_t>&) { return int64_t{getpid()}; };
  DataLoader loader(Counting{4}, {.batch_size = 2, .num_workers = 1}, who);
  for (const int64_t pid : loader) EXPECT_NE(pid, getpid());
}

TEST(CollateFnTest, SamplesOfAllKindsArePutTogetherAgain) {
  using Map = std::map<std::string, std::vector<std::array<float, 2>>>;
  const auto sample = [](size_t i) {
    const auto f = static_cast<float>(i);
    return std::tuple(Passport{at::full({2}, f), std::string(i, 'x'), i % 2 == 0},
                      Map{{"a", {{f, 1}, {f, 2}}}, {"b", {}}}, std::pair(int8_t(i), at::Half(f)));
  };
  const auto check = [](const auto& samples) {
    int64_t good = 0;
    for (const auto& [face, map, pair] : samples) {
      const auto i = static_cast<size_t>(pair.first);
      const auto f = static_cast<float>(i);
      good += face.image.equal(at::full({2}, f)) && face.name == std::string(i, 'x') &&
              face.smiles == (i % 2 == 0) && map == Map{{"a", {{f, 1}, {f, 2}}}, {"b", {}}} &&
              pair.second == at::Half(f);
    }
    return good;
  };
  DataLoader loader(Made{6, sample}, {.batch_size = 3, .num_workers = 2}, check);
  for (const int64_t good : loader) EXPECT_EQ(good, 3);
}

TEST(CollateFnTest, ABatchMayBeAStructOfTheUsers) {
  const auto best = [](const std::vector<Passport>& faces) { return faces.back(); };
  const auto face = [](size_t i) { return Passport{at::ones({3}), std::to_string(i), true}; };
  DataLoader loader(Made{4, face}, {.batch_size = 2, .num_workers = 1}, best);
  std::vector<std::string> names;
  for (const Passport& one : loader) names.push_back(one.name);
  EXPECT_THAT(names, ElementsAre("1", "3"));
}

TEST(CollateFnTest, WhatItThrowsIsTold) {
  const auto fails = [](const std::vector<int64_t>&) -> int64_t {
    throw std::runtime_error("no batch of these");
  };
  DataLoader loader(Counting{4}, {.batch_size = 2, .num_workers = 1}, fails);
  const auto error = error_of(loader);
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("caught std::runtime_error: no batch of these"));
  DataLoader here(Counting{4}, {.batch_size = 2}, fails);
  EXPECT_EQ(text_of<std::runtime_error>([&] { here.begin(); }), "no batch of these");
}

TEST(CollateFnTest, ItsRandomnessDependsOnTheSeedAlone) {
  const auto noise = [](const std::vector<int64_t>&) { return at::rand({2}); };
  const auto run = [&](int64_t workers) {
    DataLoader loader(Counting{40}, {.batch_size = 2, .num_workers = workers, .seed = 7}, noise);
    std::vector<float> all;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const at::Tensor& batch : loader) all.push_back(batch[0].item<float>());
    }
    return all;
  };
  const auto alone = run(0);
  EXPECT_EQ(run(1), alone);
  EXPECT_EQ(run(3), alone);
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_NE(alone[0], alone[20]);
}

TEST(CollateFnTest, AProgramThatFetchesItselfKeepsItsOwnRandomness) {
  const auto noise = [](const std::vector<int64_t>&) { return at::rand({2}); };
  DataLoader loader(Counting{4}, {.batch_size = 2, .seed = 7}, noise);
  at::manual_seed(3);
  const at::Tensor expected = at::rand({4});
  at::manual_seed(3);
  for ([[maybe_unused]] auto& batch : loader) {
  }
  EXPECT_TRUE(at::rand({4}).equal(expected));
}

TEST(DefaultConvertTest, YieldsSamplesAsTheyAre) {
  const auto sample = [](size_t i) {
    return std::tuple(line(static_cast<int64_t>(i), 7), static_cast<int64_t>(i), std::to_string(i));
  };
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Made{3, sample}, {.num_workers = workers}, DefaultConvert{});
    int64_t expected = 0;
    for (const auto& [tensor, number, text] : loader) {
      EXPECT_TRUE(tensor.equal(line(expected, 7)));
      EXPECT_EQ(number, expected);
      EXPECT_EQ(text, std::to_string(expected));
      ++expected;
    }
    EXPECT_EQ(expected, 3);
    EXPECT_EQ(loader.size(), 3u);
  }
}

TEST(DefaultConvertTest, RefusesOptionsAboutBatches) {
  const auto text = [](DataLoaderOptions options) {
    return text_of<std::invalid_argument>(
        [&] { DataLoader(Counting{3}, options, DefaultConvert{}); });
  };
  EXPECT_EQ(text({.batch_size = 2}),
            "stoker: batch_size is 2 with DefaultConvert, which does not batch; leave it out");
  EXPECT_EQ(text({.drop_last = true}),
            "stoker: drop_last is true with DefaultConvert, which does not batch");
}

TEST(PadCollateTest, TensorsArePaddedAndTheirSizesKept) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(growing(4), {.batch_size = 2, .num_workers = workers},
                      PadCollate{.padding_value = -1});
    std::vector<Numbers> batches;
    std::vector<Numbers> sizes;
    for (auto& [batch, all_sizes] : loader) {
      batches.push_back(numbers(batch));
      ASSERT_EQ(all_sizes.size(), 1u);
      sizes.push_back(numbers(all_sizes[0]));
    }
    EXPECT_THAT(batches, ElementsAre(Numbers{0, -1, 1, 1}, Numbers{2, 2, 2, -1, 3, 3, 3, 3}));
    EXPECT_THAT(sizes, ElementsAre(Numbers{1, 2}, Numbers{3, 4}));
  }
}

}  // namespace
}  // namespace stoker
