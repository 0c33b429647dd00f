// SPDX-License-Identifier: BSD-3-Clause
#include "memory/row_writer.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "slot_memory.h"

namespace stoker::detail {
namespace {

// The tensor as row 1 of 3, between others; then what came out. The rows are compared too.
at::Tensor through_a_row(const at::Tensor& tensor) {
  const auto bytes = encoded(tensor);
  const RowLayout layout(bytes.data());
  HeapSlot memory(Slot::kMinBytes + 2 * (layout.rows_bytes(3).value() & ~(Slot::kPage - 1)));
  const Slot slot = memory.publish({0, 1, 2});
  EXPECT_TRUE(matches(layout, flat(tensor)));
  const at::Tensor zeros = at::zeros(tensor.sizes(), tensor.scalar_type());
  std::byte* rows = slot.at(slot.rows_begin());
  RowWriter writer(layout, slot, rows, 3);
  for (uint64_t row = 0; row < 3; ++row) {
    const at::Tensor& each = row == 1 ? tensor : zeros;
    EXPECT_TRUE(writer.matches(flat(each)));
    EXPECT_TRUE(writer.write(flat(each), row));
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

TEST(RowWriterTest, EveryDtypeTravels) {
  for (const at::ScalarType dtype :
       {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kFloat, at::kDouble,
        at::kBFloat16, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
    SCOPED_TRACE(dtype);
    EXPECT_TRAVELS(at::arange(1, 13, at::kInt).view({3, 4}).to(dtype));
  }
}

TEST(RowWriterTest, DtypesOfFewOperationsTravel) {
  for (const at::ScalarType dtype : {at::kUInt16, at::kUInt32, at::kUInt64}) {
    const at::Tensor came = through_a_row(at::arange(1, 7, at::kInt).to(dtype));
    EXPECT_EQ(came.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(came.to(at::kLong), at::arange(1, 7, at::kLong))) << dtype;
  }
}

TEST(RowWriterTest, NonContiguousTensorsTravel) {
  const at::Tensor base = at::arange(24, at::kFloat).view({2, 3, 4});
  EXPECT_TRAVELS(base.permute({2, 0, 1}));
  EXPECT_TRAVELS(base.transpose(0, 1));
  EXPECT_TRAVELS(base.slice(2, 0, 4, 2));
  EXPECT_TRAVELS(base.select(1, 1));
  EXPECT_TRAVELS(
      at::arange(16, at::kFloat).view({1, 2, 2, 4}).contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(RowWriterTest, ExpandedTensorsTravel) {
  EXPECT_TRAVELS(at::arange(3, at::kInt).view({3, 1}).expand({3, 5}));
  EXPECT_TRAVELS(at::full({}, 7, at::kLong).expand({2, 2}));
}

TEST(RowWriterTest, TensorsWithoutDimensionsOrElementsTravel) {
  EXPECT_TRAVELS(at::full({}, 2.5, at::kDouble));
  EXPECT_TRAVELS(at::empty({0}, at::kFloat));
  EXPECT_TRAVELS(at::empty({3, 0, 2}, at::kBool));
}

TEST(RowWriterTest, ConjugatedAndNegatedViewsTravel) {
  const at::Tensor complex = at::complex(at::arange(4, at::kFloat), at::arange(4, 8, at::kFloat));
  ASSERT_TRUE(complex.conj().is_conj());
  EXPECT_TRAVELS(complex.conj());
  const at::Tensor negated = at::imag(complex.conj());
  ASSERT_TRUE(negated.is_neg());
  EXPECT_TRAVELS(negated);
  EXPECT_TRAVELS(at::full({}, c10::complex<float>(1, 2), at::kComplexFloat).conj());
}

TEST(RowWriterTest, OfAViewOnlyItsOwnBytesTravel) {
  const at::Tensor storage = at::arange(1 << 20, at::kFloat);
  const auto bytes = encoded(storage.slice(0, 1000, 1004));
  EXPECT_EQ(RowLayout(bytes.data()).rows_bytes(1), 64u);
  EXPECT_TRAVELS(storage.slice(0, 1000, 1004));
}

TEST(RowWriterTest, TensorsThatRequireGradTravelWithoutTheirHistory) {
  const at::Tensor leaf = at::arange(4, at::kFloat).requires_grad_();
  EXPECT_TRAVELS(leaf);
  EXPECT_TRAVELS((leaf * 2).view({2, 2}).t());
  EXPECT_FALSE(through_a_row(leaf).requires_grad());
}

TEST(RowWriterTest, RowsTooLargeForTheCacheTravel) {
  // 3 rows of 4 MB, off by a few bytes from every boundary.
  EXPECT_TRAVELS(at::arange((1 << 20) - 3, at::kInt).slice(0, 1));
}

// Whatever the writer has learned of the samples before, it says what the layout says.
TEST(RowWriterTest, MatchesWhatItsLayoutMatchesInAnyOrder) {
  const at::Tensor good = at::ones({2, 3});
  const auto bytes = encoded(good);
  const RowLayout layout(bytes.data());
  HeapSlot memory;
  const Slot slot = memory.publish({0});
  const std::vector<at::Tensor> tensors = {good,
                                           at::Tensor(),
                                           good.t(),
                                           at::ones({3, 2}).t(),
                                           good.to_sparse(),
                                           good.to(at::kDouble),
                                           at::empty({2, 3}, at::kMeta),
                                           at::quantize_per_tensor(good, 0.1, 0, at::kQInt8),
                                           good.clone().requires_grad_(),
                                           good};
  RowWriter writer(layout, slot, slot.at(slot.rows_begin()), 1);
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t k = 0; k < tensors.size(); ++k) {
      EXPECT_EQ(writer.matches(flat(tensors[i])), matches(layout, flat(tensors[i]))) << i;
      EXPECT_EQ(writer.matches(flat(tensors[k])), matches(layout, flat(tensors[k]))) << k;
    }
  }
}

TEST(RowWriterTest, MatchesOnlyTheSameKindsAndStructure) {
  const std::tuple sample(1, 2.0, std::string("text"), std::vector{1, 2});
  const auto bytes = encoded(sample);
  HeapSlot memory;
  const Slot slot = memory.publish({0});
  RowWriter writer(RowLayout(bytes.data()), slot, slot.at(slot.rows_begin()), 1);
  EXPECT_TRUE(writer.matches(flat(sample)));
  EXPECT_TRUE(writer.matches(flat(std::tuple(3, 4.0, std::string(), std::vector{3, 4}))));
  EXPECT_FALSE(writer.matches(flat(std::tuple(1, 2, std::string("text"), std::vector{1, 2}))));
  EXPECT_FALSE(writer.matches(flat(std::tuple(1, 2.0, 3, std::vector{1, 2}))));
  EXPECT_FALSE(writer.matches(flat(std::tuple(1, 2.0, std::string("text"), std::vector{1}))));
  EXPECT_FALSE(writer.matches(flat(std::tuple(1, 2.0))));
}

TEST(RowWriterTest, StringsGoToTheOpenEndUntilItIsFull) {
  HeapSlot memory;
  const Slot slot = memory.publish({0, 1});
  const std::string text(slot.bytes() / 4 + 1, 'x');
  const auto bytes = encoded(text);
  const RowLayout layout(bytes.data());
  std::byte* rows = slot.at(slot.rows_begin());
  RowWriter writer(layout, slot, rows, 2);
  ASSERT_TRUE(writer.matches(flat(text)));
  EXPECT_TRUE(writer.write(flat(text), 0));
  EXPECT_FALSE(writer.write(flat(text), 1));
}

TEST(RowWriterTest, OnlyTinySamplesAreAwaited) {
  const auto awaits = [](const auto& sample) {
    const auto bytes = encoded(sample);
    HeapSlot memory;
    const Slot slot = memory.publish({0, 1});
    RowWriter writer(RowLayout(bytes.data()), slot, slot.at(slot.rows_begin()), 2);
    EXPECT_TRUE(writer.matches(flat(sample)));
    return writer.prefetch(flat(sample), 1);
  };
  EXPECT_TRUE(awaits(at::zeros({16})));
  EXPECT_TRUE(awaits(std::tuple(at::zeros({3, 0}), int64_t{1})));
  EXPECT_FALSE(awaits(at::zeros({3, 224, 224})));
  EXPECT_FALSE(awaits(std::tuple(at::zeros({16}), std::string("not enough room is an error"))));
}

}  // namespace
}  // namespace stoker::detail
