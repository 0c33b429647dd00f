// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/collate.h>
#include <torch/types.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "datasets.h"

namespace stoker {
namespace {

using testing::ElementsAre;

TEST(PadSamplesTest, PadsEachDimensionAtItsEnd) {
  const std::vector<at::Tensor> samples{at::ones({1, 3}), at::ones({2, 1})};
  const auto [batch, sizes] = PadCollate{.padding_value = 0.5}(samples);
  EXPECT_EQ(batch.sizes(), (std::vector<int64_t>{2, 2, 3}));
  EXPECT_EQ(batch.sum().item<float>(), 5 + 7 * 0.5f);
  EXPECT_EQ(batch[0][1][0].item<float>(), 0.5f);
  EXPECT_EQ(batch[1][1][0].item<float>(), 1.f);
  ASSERT_EQ(sizes.size(), 1u);
  EXPECT_TRUE(sizes[0].equal(at::tensor({1, 3, 2, 1}, at::kLong).view({2, 2})));
}

TEST(PadSamplesTest, NumbersAndStringsAreCollatedAsEver) {
  using Sample = std::tuple<std::string, int16_t, at::Tensor, bool, at::Tensor>;
  const std::vector<Sample> samples{{"a", 1, at::ones({1}), true, at::zeros({})},
                                    {"bc", 2, at::ones({3}), false, at::ones({})}};
  const auto [batch, sizes] = PadCollate{}(samples);
  const auto& [texts, shorts, tensor, bools, scalars] = batch;
  EXPECT_THAT(texts, ElementsAre("a", "bc"));
  EXPECT_TRUE(shorts.equal(at::tensor({1, 2}, at::kShort)));
  EXPECT_EQ(tensor.sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(bools.scalar_type(), at::kBool);
  EXPECT_EQ(numbers(bools), (Numbers{1, 0}));
  EXPECT_TRUE(scalars.equal(at::tensor({0.f, 1.f})));
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_EQ(sizes[1].sizes(), (std::vector<int64_t>{2, 0}));
}

TEST(PadSamplesTest, WhatCannotBePaddedIsNamed) {
  const auto text = [](const at::Tensor& a, const at::Tensor& b) {
    return text_of<std::invalid_argument>([&] { PadCollate{}(std::vector{a, b}); });
  };
  EXPECT_EQ(
      text(at::ones({2}), at::ones({2, 1})),
      "stoker: cannot pad the samples of a batch: a tensor is Float of 1 dimensions in one of "
      "them and Float of 2 dimensions in another");
  EXPECT_EQ(
      text(at::ones({2}), at::ones({2}, at::kLong)),
      "stoker: cannot pad the samples of a batch: a tensor is Float of 1 dimensions in one of "
      "them and Long of 1 dimensions in another");
  const std::vector<std::vector<float>> lengths{{1}, {1, 2}};
  EXPECT_EQ(text_of<std::invalid_argument>([&] { PadCollate{}(lengths); }),
            "stoker: cannot pad the samples of a batch: their lengths or keys differ");
}

}  // namespace
}  // namespace stoker
