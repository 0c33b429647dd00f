// SPDX-License-Identifier: BSD-3-Clause
#include "memory/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "slot_memory.h"

namespace stoker::detail {
namespace {

using Sample = std::tuple<at::Tensor, std::string, int16_t>;

TEST(RecordTest, IsTheSampleAgain) {
  HeapSlot memory;
  const Slot slot = memory.publish({1, 2});
  const Sample sample(at::arange(6).view({2, 3}).t(), "text", -7);
  const auto bytes = RowLayout::encode(flat(sample), paths_of(sample));
  const auto record = store_record(slot, bytes, flat(sample));
  ASSERT_TRUE(record);
  const RowLayout layout(slot.at(*record));
  BatchLeaves leaves = read_row(slot, layout, slot.at(*record + layout.encoded_bytes()), 1, 0);
  const auto [tensor, text, number] = Codec<Sample>::take(leaves);
  EXPECT_TRUE(tensor.equal(std::get<0>(sample)));
  EXPECT_EQ(text, "text");
  EXPECT_EQ(number, -7);
  EXPECT_FALSE(leaves.has_more());
}

TEST(RecordTest, ARowIsReadAmongOthers) {
  HeapSlot memory;
  MapFetcher fetcher(Made(100, [](size_t i) {
    return Sample(at::full({3}, static_cast<int64_t>(i)), std::to_string(i), int16_t(i));
  }));
  const Slot slot = memory.publish({7, 8, 9});
  ASSERT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kReady);
  const RowLayout layout(slot.at(slot.header().result_layout));
  BatchLeaves leaves = read_row(slot, layout, slot.at(slot.header().result_rows), 3, 1);
  const auto [tensor, text, number] = Codec<Sample>::take(leaves);
  EXPECT_TRUE(tensor.equal(at::full({3}, 8, at::kLong)));
  EXPECT_EQ(text, "8");
  EXPECT_EQ(number, 8);
}

TEST(RecordTest, AFullSlotTakesNone) {
  HeapSlot memory;
  const Slot slot = memory.publish({1});
  const Sample sample(at::zeros({Slot::kMinBytes}), "", 0);
  const auto bytes = RowLayout::encode(flat(sample), paths_of(sample));
  EXPECT_FALSE(store_record(slot, bytes, flat(sample)));
}

}  // namespace
}  // namespace stoker::detail
