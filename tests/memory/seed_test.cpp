// SPDX-License-Identifier: BSD-3-Clause
#include "memory/seed.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace stoker::detail {
namespace {

// Vectors of PyTorch 2.13: the base seeds of a loader after manual_seed(0), epoch by epoch.
constexpr uint64_t kPythons[] = {900450186894289455u, 3969543146641149120u, 1895649597198586619u};

TEST(SeedTest, DrawsPythonsSeedsFromTheDefaultGenerator) {
  at::manual_seed(0);
  for (const uint64_t seed : kPythons) EXPECT_EQ(draw_seed({}), seed);
}

TEST(SeedTest, DrawsPythonsSeedsFromAGenerator) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(0);
  for (const uint64_t seed : kPythons) EXPECT_EQ(draw_seed(generator), seed);
}

TEST(SeedTest, AGeneratorLeavesTheDefaultOneAlone) {
  at::manual_seed(0);
  draw_seed(at::make_generator<at::CPUGeneratorImpl>(1));
  EXPECT_EQ(draw_seed({}), kPythons[0]);
}

}  // namespace
}  // namespace stoker::detail
