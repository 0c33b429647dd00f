// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/sampler_of.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <forward_list>
#include <ranges>
#include <vector>

#include "datasets.h"
#include "samplers.h"

namespace stoker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SamplerOfTest, AVectorIsTheSameEachEpoch) {
  const std::shared_ptr<Sampler<int64_t>> sampler = sampler_of(Numbers{7, 1, 7});
  EXPECT_EQ(sampler->size(), 3);
  EXPECT_FALSE(sampler->next());  // before the first epoch
  EXPECT_THAT(epoch(*sampler), ElementsAre(7, 1, 7));
  EXPECT_FALSE(sampler->next());
  EXPECT_THAT(epoch(*sampler), ElementsAre(7, 1, 7));
}

TEST(SamplerOfTest, ARangeOfAnyKindOfInteger) {
  EXPECT_THAT(epoch(*sampler_of(std::views::iota(5, 8))), ElementsAre(5, 6, 7));
  EXPECT_THAT(epoch(*sampler_of(std::deque<uint8_t>{200, 3})), ElementsAre(200, 3));
  const auto even = [](int i) { return i % 2 == 0; };
  const auto sampler = sampler_of(std::views::iota(0, 7) | std::views::filter(even));
  EXPECT_FALSE(sampler->size());
  EXPECT_THAT(epoch(*sampler), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(epoch(*sampler), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(epoch(*sampler_of(Numbers{})), IsEmpty());
}

TEST(SamplerOfTest, ARangeOfRangesIsABatchSampler) {
  const std::shared_ptr<Sampler<Numbers>> sampler =
      sampler_of(std::vector<std::vector<int>>{{1, 2}, {3}});
  EXPECT_EQ(sampler->size(), 2);
  EXPECT_THAT(epoch(*sampler), ElementsAre(Numbers{1, 2}, Numbers{3}));
  EXPECT_THAT(rest(*sampler, 1), ElementsAre(Numbers{3}));
}

TEST(SamplerOfTest, SkipsWithinItsRange) {
  for (const int64_t skipped : {0, 2, 3, 9}) {
    const Numbers all = {4, 5, 6};
    const Numbers left(all.begin() + std::min<int64_t>(skipped, 3), all.end());
    EXPECT_EQ(rest(*sampler_of(all), skipped), left);
    EXPECT_EQ(rest(*sampler_of(std::forward_list<int>{4, 5, 6}), skipped), left);
  }
}

TEST(SamplerOfTest, AFunctionOfTheEpochIsCalledForEach) {
  const auto make = [](int64_t number) { return Numbers{number, 10 * number}; };
  const std::shared_ptr<Sampler<int64_t>> sampler = sampler_of(make, 2);
  EXPECT_EQ(sampler->size(), 2);
  EXPECT_THAT(epoch(*sampler), ElementsAre(0, 0));
  EXPECT_THAT(epoch(*sampler), ElementsAre(1, 10));
  const StateDict state = sampler->state_dict();
  EXPECT_THAT(epoch(*sampler), ElementsAre(2, 20));
  const auto other = sampler_of(make);
  EXPECT_FALSE(other->size());
  other->load_state_dict(state);
  EXPECT_THAT(rest(*other, 1), ElementsAre(20));
  EXPECT_THAT(epoch(*other), ElementsAre(3, 30));
}

TEST(SamplerOfTest, AFunctionMayReturnAReferenceToItsRange) {
  Numbers kept = {4, 2};
  const auto sampler = sampler_of([&kept](int64_t) -> const Numbers& { return kept; });
  EXPECT_THAT(epoch(*sampler), ElementsAre(4, 2));
  kept = {9};
  EXPECT_THAT(epoch(*sampler), ElementsAre(9));
}

TEST(SamplerOfTest, AFunctionMayReturnBatches) {
  const auto sampler = sampler_of([](int64_t) { return std::vector<Numbers>{{1}, {2, 3}}; });
  EXPECT_THAT(epoch(*sampler), ElementsAre(Numbers{1}, Numbers{2, 3}));
}

}  // namespace
}  // namespace stoker
