// SPDX-License-Identifier: BSD-3-Clause
#include "loader/finished_batch.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "datasets.h"
#include "slot_memory.h"

namespace stoker::detail {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Sample = std::tuple<at::Tensor, int16_t, std::string, std::map<int, std::vector<float>>>;

Sample sample_of(size_t i) {
  return {at::full({2, 3}, static_cast<int>(i), at::kInt),
          static_cast<int16_t>(i),
          "text " + std::to_string(i),
          {{7, {1, 2}}, {9, {3}}}};
}

class FinishedBatchTest : public testing::Test {
 protected:
  FinishedBatchTest() {
    MapFetcher fetcher(Made(100, sample_of));
    EXPECT_EQ(fill_and_collate(slot_, fetcher), SlotStatus::kReady);
  }

  SlotHeader& header() { return slot_.header(); }
  BatchOf<Sample> read() {
    BatchLeaves leaves = read_batch(slot_, 3);
    return Codec<Sample>::gather(leaves);
  }
  std::string refusal() {
    return text_of<std::runtime_error>([this] { read(); });
  }
  // Whether the sound batch is there again.
  bool is_sound() {
    const auto [images, numbers, texts, maps] = read();
    return texts == std::vector<std::string>{"text 4", "text 5", "text 6"} && maps.size() == 2;
  }
  // Of the texts: the third leaf.
  StringRow* strings() {
    const RowLayout layout(slot_.at(header().result_layout));
    std::byte* rows = slot_.at(header().result_rows);
    for (int leaf = 0; leaf < 2; ++leaf) rows += align64(layout.leaves()[leaf].row_bytes * 3);
    return reinterpret_cast<StringRow*>(rows);
  }
  // Each byte of that memory gets each of these values: what is read then is a batch whose tensors
  // lie in the slot, or it is refused with our words.
  void damage_each_byte(void* memory, uint64_t bytes) {
    auto* begin = static_cast<std::byte*>(memory);
    for (std::byte* at = begin; at < begin + bytes; ++at) {
      const std::byte sound = *at;
      for (const int value : {0, 1, 2, 8, 64, 127, 128, 255, std::to_integer<int>(sound) ^ 1}) {
        *at = static_cast<std::byte>(value);
        expect_refused_or_in_slot();
        *at = sound;
      }
    }
    EXPECT_TRUE(is_sound());
  }
  void expect_refused_or_in_slot() {
    try {
      BatchLeaves leaves = read_batch(slot_, 3);
      for (const auto& leaf : leaves.leaves) {
        if (leaf.tensor.defined()) expect_in_slot(leaf.tensor);
      }
      Codec<Sample>::gather(leaves);
    } catch (const std::runtime_error& error) {
      ASSERT_THAT(error.what(), HasSubstr("of a batch in shared memory is damaged"));
    }
  }
  void expect_in_slot(const at::Tensor& tensor) {
    const auto* begin = static_cast<const std::byte*>(tensor.const_data_ptr());
    ASSERT_GE(begin, slot_.at(slot_.rows_begin()));
    ASSERT_LE(begin + tensor.nbytes(), slot_.at(slot_.bytes()));
  }

  HeapSlot memory_;
  Slot slot_ = memory_.publish({4, 5, 6});
};

TEST_F(FinishedBatchTest, IsReadAsItWasWritten) {
  const auto [images, shorts, texts, maps] = read();
  EXPECT_EQ(images.sizes(), at::IntArrayRef({3, 2, 3}));
  EXPECT_THAT(numbers(shorts), ElementsAre(4, 5, 6));
  EXPECT_TRUE(is_sound());
  EXPECT_THAT(numbers(maps.at(7).at(1)), ElementsAre(2, 2, 2));
}

TEST_F(FinishedBatchTest, AnyByteOfTheLayoutMayBeDamaged) {
  std::byte* layout = slot_.at(header().result_layout);
  damage_each_byte(layout, RowLayout(layout).encoded_bytes());
}

TEST_F(FinishedBatchTest, AnyByteOfTheHeaderMayBeDamaged) { damage_each_byte(&header(), 512); }

TEST_F(FinishedBatchTest, AnyByteOfAStringsPlaceMayBeDamaged) {
  damage_each_byte(strings(), 3 * sizeof(StringRow));
}

TEST_F(FinishedBatchTest, AMessageSaysWhatIsDamaged) {
  const std::string rest =
      " of a batch in shared memory is damaged: code that the dataset calls, or the program, wrote "
      "over the loader's memory; build it with -fsanitize=address to see where";
  header().result_rows = uint64_t{1} << 50;
  EXPECT_EQ(refusal(), "stoker: the header" + rest);
  header().result_rows = slot_.rows_begin();
  strings()[1].bytes = uint64_t{1} << 40;
  EXPECT_EQ(refusal(), "stoker: a string" + rest);
  strings()[1].bytes = 0;
  header().result_layout += 64;
  EXPECT_EQ(refusal(), "stoker: the layout" + rest);
}

TEST_F(FinishedBatchTest, ABatchOfAnotherSizeIsRefused) {
  header().num_samples = 2;
  EXPECT_THAT(refusal(), HasSubstr("the header"));
  header().num_samples = UINT32_MAX;
  EXPECT_THAT(refusal(), HasSubstr("the header"));
}

TEST_F(FinishedBatchTest, RowsDoNotLieOverTheBooks) {
  header().result_rows = 0;
  EXPECT_THAT(refusal(), HasSubstr("the header"));
  header().result_rows = slot_.rows_begin() - 64;
  EXPECT_THAT(refusal(), HasSubstr("the header"));
}

TEST_F(FinishedBatchTest, StringsTakeNoMoreThanWasWritten) {
  // Each lies in the slot, but all of them are more than the open end has given out.
  for (int row = 0; row < 3; ++row) strings()[row] = {slot_.bytes() / 2, 128};
  EXPECT_THAT(refusal(), HasSubstr("a string"));
}

}  // namespace
}  // namespace stoker::detail
