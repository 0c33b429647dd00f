// SPDX-License-Identifier: BSD-3-Clause
#include "memory/row_layout.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "slot_memory.h"

namespace stoker::detail {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RowLayoutTest, TellsLeavesPathsAndSizes) {
  const std::tuple sample(at::zeros({2, 3}), int16_t{4}, std::string("text"));
  const auto bytes = encoded(sample);
  const RowLayout layout(bytes.data());
  ASSERT_EQ(layout.leaves().size(), 3u);
  EXPECT_EQ(layout.sizes(layout.leaves()[0]), at::IntArrayRef({2, 3}));
  EXPECT_EQ(layout.path(layout.leaves()[1]), "[1]");
  EXPECT_EQ(layout.leaves()[0].row_bytes, 24u);
  EXPECT_EQ(layout.leaves()[1].row_bytes, 2u);
  EXPECT_EQ(layout.encoded_bytes(), bytes.size());
  EXPECT_EQ(bytes.size() % 64, 0u);
}

TEST(RowLayoutTest, DescribesLeavesForMessages) {
  const std::tuple sample(at::zeros({3, 224, 224}), at::zeros({}, at::kBool), 1.0,
                          std::string("text"), at::zeros({0}, at::kBFloat16));
  const auto bytes = encoded(sample);
  const RowLayout layout(bytes.data());
  const std::vector<std::string> expected = {"Float [3, 224, 224]", "Bool []", "Double []",
                                             "string", "BFloat16 [0]"};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(describe(layout, layout.leaves()[i]), expected[i]);
  }
}

// Which samples match the layout of (float [2], int32, vector of 2).
using Sample = std::tuple<at::Tensor, int32_t, std::vector<float>>;

bool matches(const Sample& sample) {
  const auto bytes = encoded(Sample(at::zeros({2}), 1, {0, 0}));
  const auto other = encoded(sample);
  const bool found = matches(RowLayout(bytes.data()), flat(sample));
  EXPECT_EQ(RowLayout(bytes.data()) == RowLayout(other.data()), found);
  return found;
}

TEST(RowLayoutTest, MatchesWhateverTheValues) {
  EXPECT_TRUE(matches({at::ones({2}), 5, {1, 2}}));
  EXPECT_TRUE(matches({at::zeros({1}).expand({2}), 5, {1, 2}}));
}

TEST(RowLayoutTest, MatchesNoOtherShapeDtypeOrLength) {
  EXPECT_FALSE(matches({at::zeros({3}), 1, {0, 0}}));
  EXPECT_FALSE(matches({at::zeros({2, 1}), 1, {0, 0}}));
  EXPECT_FALSE(matches({at::zeros({}), 1, {0, 0}}));
  EXPECT_FALSE(matches({at::zeros({2}, at::kInt), 1, {0, 0}}));
  EXPECT_FALSE(matches({at::zeros({2}), 1, {0}}));
  EXPECT_FALSE(matches({at::zeros({2}), 1, {}}));
}

TEST(RowLayoutTest, MatchesNoSampleThatNoBatchCanHold) {
  const Sample good(at::zeros({2}), 1, {0, 0});
  const auto bytes = encoded(good);
  for (const at::Tensor& bad :
       {at::Tensor(), at::zeros({2}, at::kMeta), at::zeros({2}).to_sparse()}) {
    const Sample sample(bad, 1, {0, 0});
    EXPECT_FALSE(matches(RowLayout(bytes.data()), flat(sample)));
  }
}

TEST(RowLayoutTest, MatchesOnlyTheSameKeys) {
  using Map = std::map<std::string, int>;
  const Map sample{{"a", 1}, {"b", 2}};
  const Map other{{"a", 1}, {"c", 2}};
  const auto bytes = encoded(sample);
  EXPECT_TRUE(matches(RowLayout(bytes.data()), flat(Map{{"a", 3}, {"b", 4}})));
  EXPECT_FALSE(matches(RowLayout(bytes.data()), flat(other)));
}

TEST(RowLayoutTest, RowsOfEachLeafAreOneAlignedBlock) {
  const std::tuple sample(at::zeros({3}), int64_t{1}, false);
  const auto bytes = encoded(sample);
  EXPECT_EQ(RowLayout(bytes.data()).rows_bytes(1), 3 * 64u);
  EXPECT_EQ(RowLayout(bytes.data()).rows_bytes(100), 1216u + 832u + 128u);
}

TEST(RowLayoutTest, NoSizeForRowsThatNoMemoryHolds) {
  const at::Tensor huge = at::zeros({1}).expand({int64_t{1} << 40});
  const auto bytes = encoded(huge);
  EXPECT_EQ(RowLayout(bytes.data()).rows_bytes(1), uint64_t{4} << 40);
  EXPECT_FALSE(RowLayout(bytes.data()).rows_bytes(100));
  EXPECT_FALSE(RowLayout(bytes.data()).rows_bytes(UINT32_MAX));
  const std::tuple two(huge, at::zeros({1}).expand({int64_t{16} << 40}));
  const auto sum = encoded(two);
  EXPECT_FALSE(RowLayout(sum.data()).rows_bytes(1));
}

TEST(RowLayoutTest, BytesOfARowDoNotWrap) {
  // 2^61 doubles, 2^64 bytes.
  const at::Tensor huge = at::zeros({1}, at::kDouble).expand({int64_t{1} << 61});
  const auto bytes = encoded(huge);
  EXPECT_FALSE(RowLayout(bytes.data()).rows_bytes(1));
}

TEST(RowLayoutTest, CopiesOneRowAmongOthers) {
  using Pair = std::pair<int32_t, at::Tensor>;
  HeapSlot memory;
  const Slot slot = memory.publish({0, 1, 2});
  const Pair sample(42, at::full({5}, 7, at::kChar));
  const auto bytes = encoded(sample);
  const RowLayout layout(bytes.data());
  std::vector<std::byte> one(*layout.rows_bytes(1)), rows(*layout.rows_bytes(3));
  RowWriter writer(layout, slot, one.data(), 1);
  ASSERT_TRUE(writer.matches(flat(sample)) && writer.write(flat(sample), 0));
  copy_row(layout, one.data(), rows.data(), 3, 2);
  EXPECT_EQ(reinterpret_cast<const int32_t*>(rows.data())[2], 42);
  const std::byte* chars = rows.data() + 64;
  for (size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(static_cast<int>(chars[i]), i >= 10 && i < 15 ? 7 : 0) << i;
  }
}

std::string refusal(const at::Tensor& tensor) {
  const std::pair sample(1, std::map<std::string, at::Tensor>{{"mask", tensor}});
  return text_of<std::invalid_argument>([&] { encoded(sample); });
}

TEST(RowLayoutTest, RefusesWhatNoBatchCanHoldAndNamesTheField) {
  const std::string field = "stoker: the sample's field [1][\"mask\"] ";
  EXPECT_EQ(refusal({}), field + "is an undefined tensor");
  EXPECT_THAT(refusal(at::zeros({2}, at::kMeta)),
              AllOf(HasSubstr(field + "is a tensor on meta"), HasSubstr("return CPU tensors")));
  EXPECT_THAT(refusal(at::ones({2, 2}).to_sparse()),
              AllOf(HasSubstr(field + "is a tensor of layout Sparse"), HasSubstr("dense")));
  EXPECT_THAT(refusal(at::ones({2, 2}).to_sparse_csr()), HasSubstr("of layout SparseCsr"));
  EXPECT_THAT(refusal(at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8)),
              AllOf(HasSubstr(field + "is a quantized tensor"), HasSubstr("int_repr()")));
  EXPECT_THAT(refusal(at::_nested_tensor_from_tensor_list({at::ones({2}), at::ones({3})})),
              AllOf(HasSubstr(field + "is a nested tensor"), HasSubstr("std::vector")));
}

TEST(RowLayoutTest, ASampleThatIsOneTensorHasNoFieldToName) {
  EXPECT_EQ(text_of<std::invalid_argument>([] { encoded(at::Tensor()); }),
            "stoker: the sample is an undefined tensor");
}

}  // namespace
}  // namespace stoker::detail
