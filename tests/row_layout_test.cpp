// SPDX-License-Identifier: BSD-3-Clause
#include "row_layout.h"

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

// The tensor as row 1 of 3, between others; then what came out. The rows are compared too.
at::Tensor through_a_row(const at::Tensor& tensor) {
  const auto bytes = encoded(tensor);
  const RowLayout layout(bytes.data());
  HeapSlot memory(Slot::kMinBytes + 2 * (layout.rows_bytes(3).value() & ~(Slot::kPage - 1)));
  const Slot slot = memory.publish({0, 1, 2});
  EXPECT_TRUE(layout.matches(flat(tensor)));
  const at::Tensor zeros = at::zeros(tensor.sizes(), tensor.scalar_type());
  std::byte* rows = slot.at(slot.rows_begin());
  for (uint64_t row = 0; row < 3; ++row) {
    EXPECT_TRUE(write_row(flat(row == 1 ? tensor : zeros), layout, slot, rows, 3, row));
  }
  std::vector<int64_t> sizes = {3};
  sizes.insert(sizes.end(), layout.sizes(layout.leaves()[0]).begin(),
               layout.sizes(layout.leaves()[0]).end());
  const at::Tensor batch = at::from_blob(rows, sizes, layout.leaves()[0].dtype);
  EXPECT_TRUE(at::equal(batch[0], zeros) && at::equal(batch[2], zeros)) << "row 1 is too long";
  return batch[1].clone();
}

#define EXPECT_TRAVELS(tensor)                                                        \
  do {                                                                                \
    const at::Tensor sent = (tensor);                                                 \
    const at::Tensor came = through_a_row(sent);                                      \
    EXPECT_EQ(came.scalar_type(), sent.scalar_type());                                \
    EXPECT_TRUE(at::equal(came, sent.detach().resolve_conj().resolve_neg())) << came; \
  } while (false)

TEST(RowLayoutTest, EveryDtypeTravels) {
  for (const at::ScalarType dtype :
       {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat, at::kDouble,
        at::kBFloat16, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
    SCOPED_TRACE(dtype);
    EXPECT_TRAVELS(at::arange(1, 13, at::kInt).view({3, 4}).to(dtype));
  }
}

TEST(RowLayoutTest, DtypesOfFewOperationsTravel) {
  for (const at::ScalarType dtype : {at::kUInt16, at::kUInt32, at::kUInt64}) {
    const at::Tensor came = through_a_row(at::arange(1, 7, at::kInt).to(dtype));
    EXPECT_EQ(came.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(came.to(at::kLong), at::arange(1, 7, at::kLong))) << dtype;
  }
}

TEST(RowLayoutTest, NonContiguousTensorsTravel) {
  const at::Tensor base = at::arange(24, at::kFloat).view({2, 3, 4});
  EXPECT_TRAVELS(base.permute({2, 0, 1}));
  EXPECT_TRAVELS(base.transpose(0, 1));
  EXPECT_TRAVELS(base.slice(2, 0, 4, 2));
  EXPECT_TRAVELS(base.select(1, 1));
  EXPECT_TRAVELS(
      at::arange(16, at::kFloat).view({1, 2, 2, 4}).contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(RowLayoutTest, ExpandedTensorsTravel) {
  EXPECT_TRAVELS(at::arange(3, at::kInt).view({3, 1}).expand({3, 5}));
  EXPECT_TRAVELS(at::full({}, 7, at::kLong).expand({2, 2}));
}

TEST(RowLayoutTest, TensorsWithoutDimensionsOrElementsTravel) {
  EXPECT_TRAVELS(at::full({}, 2.5, at::kDouble));
  EXPECT_TRAVELS(at::empty({0}, at::kFloat));
  EXPECT_TRAVELS(at::empty({3, 0, 2}, at::kBool));
}

TEST(RowLayoutTest, ConjugatedAndNegatedViewsTravel) {
  const at::Tensor complex = at::complex(at::arange(4, at::kFloat), at::arange(4, 8, at::kFloat));
  ASSERT_TRUE(complex.conj().is_conj());
  EXPECT_TRAVELS(complex.conj());
  const at::Tensor negated = at::imag(complex.conj());
  ASSERT_TRUE(negated.is_neg());
  EXPECT_TRAVELS(negated);
  EXPECT_TRAVELS(at::full({}, c10::complex<float>(1, 2), at::kComplexFloat).conj());
}

TEST(RowLayoutTest, OfAViewOnlyItsOwnBytesTravel) {
  const at::Tensor storage = at::arange(1 << 20, at::kFloat);
  const auto bytes = encoded(storage.slice(0, 1000, 1004));
  EXPECT_EQ(RowLayout(bytes.data()).rows_bytes(1), 64u);
  EXPECT_TRAVELS(storage.slice(0, 1000, 1004));
}

TEST(RowLayoutTest, TensorsThatRequireGradTravelWithoutTheirHistory) {
  const at::Tensor leaf = at::arange(4, at::kFloat).requires_grad_();
  EXPECT_TRAVELS(leaf);
  EXPECT_TRAVELS((leaf * 2).view({2, 2}).t());
  EXPECT_FALSE(through_a_row(leaf).requires_grad());
}

TEST(RowLayoutTest, RowsTooLargeForTheCacheTravel) {
  // 3 rows of 4 MB, off by a few bytes from every boundary.
  EXPECT_TRAVELS(at::arange((1 << 20) - 3, at::kInt).slice(0, 1));
}

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
  const bool matches = RowLayout(bytes.data()).matches(flat(sample));
  EXPECT_EQ(RowLayout(bytes.data()) == RowLayout(other.data()), matches);
  return matches;
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
    EXPECT_FALSE(RowLayout(bytes.data()).matches(flat(sample)));
  }
}

TEST(RowLayoutTest, MatchesOnlyTheSameKeys) {
  using Map = std::map<std::string, int>;
  const Map sample{{"a", 1}, {"b", 2}};
  const Map other{{"a", 1}, {"c", 2}};
  const auto bytes = encoded(sample);
  EXPECT_TRUE(RowLayout(bytes.data()).matches(flat(Map{{"a", 3}, {"b", 4}})));
  EXPECT_FALSE(RowLayout(bytes.data()).matches(flat(other)));
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
  ASSERT_TRUE(write_row(flat(sample), layout, slot, one.data(), 1, 0));
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

TEST(RowLayoutTest, StringsGoToTheOpenEndUntilItIsFull) {
  HeapSlot memory;
  const Slot slot = memory.publish({0, 1});
  const std::string text(slot.bytes() / 4 + 1, 'x');
  const auto bytes = encoded(text);
  const RowLayout layout(bytes.data());
  std::byte* rows = slot.at(slot.rows_begin());
  EXPECT_TRUE(write_row(flat(text), layout, slot, rows, 2, 0));
  EXPECT_FALSE(write_row(flat(text), layout, slot, rows, 2, 1));
}

}  // namespace
}  // namespace stoker::detail
