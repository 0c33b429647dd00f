// SPDX-License-Identifier: BSD-3-Clause
#include "samplers/generator_state.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "datasets.h"

namespace stoker::detail {
namespace {

at::Generator seeded(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

Numbers drawn(at::Generator& generator, int64_t count = 5) {
  return numbers(at::randint(1 << 30, {count}, generator));
}

class GeneratorStateTest : public testing::TestWithParam<int> {};

TEST_P(GeneratorStateTest, AGeneratorGoesOnFromItsState) {
  at::Generator first = seeded(7);
  if (GetParam() > 0) drawn(first, GetParam());
  const StateDict state = GeneratorState::read(first).state_dict();
  at::Generator second = seeded(1);
  GeneratorState::from(state).write(second);
  EXPECT_EQ(drawn(second, 2000), drawn(first, 2000));
}

INSTANTIATE_TEST_SUITE_P(Draws, GeneratorStateTest,
                         testing::Values(0, 1, 2, 623, 624, 625, 1248, 100'000, 3'000'000));

TEST(GeneratorStateSizeTest, IsAFewBytesNearTheSeed) {
  at::Generator generator = seeded(7);
  drawn(generator, 500'000);
  EXPECT_LT(GeneratorState::read(generator).state_dict().to_json().size(), 60U);
}

TEST(GeneratorStateSizeTest, KeepsHalfAPairOfNormalNumbers) {
  at::Generator first = seeded(7);
  at::randn({1}, first, at::kDouble);
  const StateDict state = GeneratorState::read(first).state_dict();
  at::Generator second = seeded(1);
  GeneratorState::from(state).write(second);
  EXPECT_TRUE(at::randn({3}, second, at::kDouble).equal(at::randn({3}, first, at::kDouble)));
}

TEST(GeneratorStateSizeTest, OfTheDefaultGeneratorIfNoneIsGiven) {
  const GeneratorState before = GeneratorState::read({});
  at::Generator standard = at::detail::getDefaultCPUGenerator();
  const Numbers once = drawn(standard);
  before.write({});
  EXPECT_EQ(drawn(standard), once);
}

TEST(GeneratorStateSizeTest, ADamagedStateIsRefused) {
  const auto refused = [](const StateDict& state) {
    EXPECT_THROW(GeneratorState::from(state), std::invalid_argument);
  };
  refused({});
  StateDict negative;
  negative.set("seed", int64_t{1});
  negative.set("draws", int64_t{-1});
  refused(negative);
  negative.set("draws", int64_t{1} << 40);
  refused(negative);
  StateDict engine;
  engine.set("engine", std::string("short"));
  refused(engine);
  at::Generator far = seeded(7);
  drawn(far, 3'000'000);
  const std::string good = GeneratorState::read(far).state_dict().text("engine");
  engine.set("engine", good);
  GeneratorState::from(engine);
  // What is left of a state, and the next number of it: the engine would read beyond its end.
  for (const auto& [at, bytes] :
       {std::pair(16, "00000270"), std::pair(24, "00000271"), std::pair(24, "0000xx01")}) {
    std::string bad = good;
    bad.replace(static_cast<size_t>(at), 8, bytes);
    engine.set("engine", bad);
    refused(engine);
  }
}

}  // namespace
}  // namespace stoker::detail
