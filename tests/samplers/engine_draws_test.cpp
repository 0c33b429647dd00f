// SPDX-License-Identifier: BSD-3-Clause
#include "samplers/engine_draws.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "memory/seed.h"

namespace stoker::detail {
namespace {

at::Generator seeded() { return at::make_generator<at::CPUGeneratorImpl>(3); }

TEST(TakeDrawsTest, TheGeneratorIsMovedOnByThem) {
  const at::Generator taken = seeded(), drawn = seeded();
  EngineDraws draws(take_draws(taken, 2 * EngineDraws::kDrawsOfUniform));
  EngineDraws same(take_draws(drawn, 0));
  EXPECT_EQ(draws.uniform(), same.uniform());
  EXPECT_EQ(draws.uniform(), same.uniform());
  EXPECT_EQ(draws.uniform(), EngineDraws(take_draws(taken, 0)).uniform());
}

TEST(TakeEpochTest, UpToTheLimitItIsTheGeneratorsOwnEngine) {
  const at::Generator epoch = seeded(), drawn = seeded();
  EXPECT_EQ(EngineDraws(take_epoch(epoch, 3, 5)).uniform(),
            EngineDraws(take_draws(drawn, 15)).uniform());
  EXPECT_EQ(draw_seed(epoch), draw_seed(drawn));
  EXPECT_EQ(EngineDraws(take_epoch(epoch, std::numeric_limits<uint64_t>::max(), 0)).uniform(),
            EngineDraws(take_draws(drawn, 0)).uniform());
}

TEST(TakeEpochTest, BeyondTheLimitASeedIsAllThatIsDrawn) {
  for (const uint64_t count : {kMostTaken / 2 + 1, std::numeric_limits<uint64_t>::max()}) {
    const at::Generator epoch = seeded(), drawn = seeded();
    EXPECT_EQ(EngineDraws(take_epoch(epoch, count, 2)).uniform(),
              EngineDraws(at::mt19937(draw_seed(drawn))).uniform());
    EXPECT_EQ(draw_seed(epoch), draw_seed(drawn)) << count;
  }
}

}  // namespace
}  // namespace stoker::detail
