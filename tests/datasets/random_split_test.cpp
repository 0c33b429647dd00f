// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/datasets/subset.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "datasets.h"
#include "memory/seed.h"
#include "support.h"

namespace stoker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

at::Generator seeded(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

template <class Dataset>
std::vector<size_t> sizes(const std::vector<Subset<Dataset>>& parts) {
  std::vector<size_t> all;
  for (const auto& part : parts) all.push_back(part.size());
  return all;
}

// A vector of PyTorch 2.13.
TEST(RandomSplitTest, DrawsPythonsOrder) {
  const auto parts = random_split(Counting{10}, {3, 7}, seeded(1));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_THAT(parts[0].indices(), ElementsAre(5, 6, 1));
  EXPECT_THAT(parts[1].indices(), ElementsAre(2, 0, 8, 9, 3, 7, 4));
  EXPECT_EQ(parts[1].get(2), 8);
}

TEST(RandomSplitTest, IntegersAreNumbersOfSamples) {
  EXPECT_THAT(sizes(random_split(Counting{6}, {2, 4})), ElementsAre(2, 4));
  EXPECT_THAT(sizes(random_split(Counting{1}, {1})), ElementsAre(1));
  EXPECT_THAT(sizes(random_split(Counting{5}, std::vector<size_t>{0, 5})), ElementsAre(0, 5));
  EXPECT_THAT(sizes(random_split(Counting{0}, std::vector<int>{})), IsEmpty());
}

TEST(RandomSplitTest, FractionsAreRoundedDownAndTheFirstGetWhatIsLeft) {
  EXPECT_THAT(sizes(random_split(Counting{6}, {0.5, 0.5})), ElementsAre(3, 3));
  EXPECT_THAT(sizes(random_split(Counting{3}, {0.5, 0.5})), ElementsAre(2, 1));
  EXPECT_THAT(sizes(random_split(Counting{106}, {0.1, 0.2, 0.3, 0.4})),
              ElementsAre(11, 22, 31, 42));
  EXPECT_THAT(sizes(random_split(Counting{10}, std::vector<float>{1.0f})), ElementsAre(10));
}

TEST(RandomSplitTest, NoSampleIsInTwoPartsAndNoneIsLost) {
  Numbers all;
  for (const auto& part : random_split(Counting{50}, {0.3, 0.3, 0.4}, seeded(test_seed()))) {
    all.insert(all.end(), part.indices().begin(), part.indices().end());
  }
  EXPECT_NE(all, up_to(50));
  std::ranges::sort(all);
  EXPECT_EQ(all, up_to(50));
}

TEST(RandomSplitTest, DrawsFromItsGeneratorOrElseFromTorchs) {
  at::manual_seed(5);
  random_split(Counting{10}, {5, 5}, seeded(1));
  const uint64_t untouched = detail::draw_seed({});
  at::manual_seed(5);
  EXPECT_EQ(detail::draw_seed({}), untouched);

  at::manual_seed(1);
  const auto one = random_split(Counting{10}, {3, 7});
  EXPECT_THAT(one[0].indices(), ElementsAre(5, 6, 1));
  EXPECT_NE(random_split(Counting{10}, {3, 7})[1].indices(), one[1].indices());
}

TEST(RandomSplitTest, AllPartsShareTheDataset) {
  struct MoveOnly : Counting {
    std::unique_ptr<int> held;
  };
  const auto parts = random_split(MoveOnly{{4}, nullptr}, {1, 3});
  EXPECT_EQ(parts[0].dataset(), parts[1].dataset());
  EXPECT_EQ(parts[0].dataset().use_count(), 2);
  const auto whole = std::make_shared<Counting>(Counting{4});
  EXPECT_EQ(random_split(whole, {1, 3})[1].dataset(), whole);
}

template <class Length>
std::string refusal(size_t size, std::vector<Length> lengths) {
  return text_of<std::invalid_argument>([&] { random_split(Counting{size}, lengths); });
}

TEST(RandomSplitTest, RefusesLengthsThatDoNotAddUp) {
  EXPECT_EQ(
      refusal<int>(4, {1, 2}),
      "stoker: the lengths of a random_split (1 + 2) do not reach 4, the size of the dataset");
  EXPECT_EQ(refusal<int>(4, {1, 5, 1}),
            "stoker: the lengths of a random_split (1 + 5 ..) exceed 4, the size of the dataset");
  EXPECT_EQ(refusal<int>(4, {5, -1}),
            "stoker: the lengths of a random_split (5 ..) exceed 4, the size of the dataset");
  EXPECT_EQ(refusal<int>(4, {-1, 5}), "stoker: random_split was given the length -1");
  EXPECT_EQ(refusal<int64_t>(4, {INT64_MAX, INT64_MAX}),
            "stoker: the lengths of a random_split (9223372036854775807 ..) exceed 4, the size of "
            "the dataset");
  EXPECT_EQ(refusal<double>(4, {0.5, 0.4}),
            "stoker: the fractions of a random_split add up to 0.900000 instead of 1");
  EXPECT_EQ(refusal<double>(4, {}),
            "stoker: the fractions of a random_split add up to 0.000000 instead of 1");
  EXPECT_EQ(refusal<double>(4, {1.5, -0.5}),
            "stoker: random_split was given the fraction 1.500000; it must be 0 to 1");
  EXPECT_EQ(refusal<double>(4, {std::numeric_limits<double>::quiet_NaN()}),
            "stoker: random_split was given the fraction nan; it must be 0 to 1");
}

TEST(RandomSplitTest, RefusesDatasetsThatItCannotSplit) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { random_split(std::shared_ptr<Counting>(), {1}); }),
            "stoker: random_split needs a dataset");
  struct Unsized {
    int get(size_t) const { return 0; }
    std::optional<size_t> size() const { return std::nullopt; }
  };
  EXPECT_EQ(text_of<std::invalid_argument>([] { random_split(Unsized(), {1}); }),
            "stoker: a dataset of a random_split has no size");
}

// Python refuses fractions like these, which add up to a trifle more than 1.
TEST(RandomSplitTest, TakesFractionsAsTheyAddUpInDoubles) {
  const std::vector<double> fractions = {0.1, 0.2, 0.3, 0.4, 1e-16, 4e-16};
  EXPECT_THAT(sizes(random_split(Counting{10}, fractions)), ElementsAre(1, 2, 3, 4, 0, 0));
}

class Warnings : public c10::WarningHandler {
 public:
  Warnings() { c10::WarningUtils::set_warning_handler(this); }
  ~Warnings() override { c10::WarningUtils::set_warning_handler(before_); }
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }

  std::vector<std::string> texts;

 private:
  c10::WarningHandler* before_ = c10::WarningUtils::get_warning_handler();
};

TEST(RandomSplitTest, WarnsOfFractionsThatLeaveAPartEmpty) {
  Warnings warnings;
  EXPECT_THAT(sizes(random_split(Counting{2}, {0.4, 0.3, 0.3})), ElementsAre(1, 1, 0));
  EXPECT_THAT(warnings.texts, ElementsAre("stoker: part 2 of a random_split is empty"));
  random_split(Counting{2}, {2, 0});
  EXPECT_EQ(warnings.texts.size(), 1u);
}

}  // namespace
}  // namespace stoker
