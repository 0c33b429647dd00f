// SPDX-License-Identifier: BSD-3-Clause
#include "loader/hand_out.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "datasets.h"
#include "loader/slot_pool.h"
#include "slot_memory.h"

namespace stoker::detail {
namespace {

using testing::ElementsAre;

class HandOutTest : public testing::Test {
 protected:
  // A finished batch of samples made by that function of the index, handed out.
  template <class Make>
  void hand_out_batch(const Numbers& indices, Make make) {
    batch_.clear();
    id_ = pool_->acquire(indices.size()).value();
    const Slot slot = pool_->control().slot(id_);
    slot.publish(indices, generation_++, {});
    MapFetcher fetcher(Made(1000, make));
    ASSERT_EQ(fill_and_collate(slot, fetcher), SlotStatus::kReady);
    hand_out(pool_, id_, batch_);
  }
  Slot slot() { return pool_->control().slot(id_); }
  // Whether the slot of the batch can be had again.
  bool is_free() {
    const uint32_t next = pool_->acquire(1).value();
    pool_->give_back(next);
    return next == id_;
  }

  std::shared_ptr<SlotPool> pool_ =
      std::make_shared<SlotPool>(0, InFlightLimit{1, 1}, uint64_t{1} << 40);
  BatchLeaves batch_;
  uint32_t id_ = 0;
  uint32_t generation_ = 0;
};

std::pair<at::Tensor, int16_t> pair_of(size_t i) {
  return {at::full({2, 3}, static_cast<double>(i), at::kDouble), static_cast<int16_t>(i)};
}

TEST_F(HandOutTest, TensorsHaveShapeDtypeAndValuesOfTheBatch) {
  hand_out_batch({4, 5}, pair_of);
  ASSERT_EQ(batch_.leaves.size(), 2u);
  const at::Tensor first = batch_.take_tensor();
  const at::Tensor second = batch_.take_tensor();
  EXPECT_EQ(first.sizes(), at::IntArrayRef({2, 2, 3}));
  EXPECT_TRUE(at::equal(first[1], at::full({2, 3}, 5.0, at::kDouble)));
  EXPECT_EQ(second.scalar_type(), at::kShort);
  EXPECT_THAT(numbers(second), ElementsAre(4, 5));
  EXPECT_TRUE(first.is_contiguous());
  EXPECT_FALSE(first.requires_grad());
}

TEST_F(HandOutTest, TensorsLieInTheSlotAndMayBeWrittenTo) {
  hand_out_batch({4, 5}, pair_of);
  const at::Tensor tensor = batch_.take_tensor();
  EXPECT_EQ(tensor.data_ptr(), slot().at(slot().header().result_rows));
  tensor.fill_(9);
  EXPECT_THAT(numbers(batch_.take_tensor()), ElementsAre(4, 5));
}

TEST_F(HandOutTest, TheSlotIsHeldUntilTheLastTensorIsGone) {
  hand_out_batch({4, 5}, pair_of);
  at::Tensor first = batch_.take_tensor();
  at::Tensor second = batch_.take_tensor();
  batch_.clear();
  at::Tensor view = second.slice(0, 1);
  first.reset();
  second.reset();
  EXPECT_FALSE(is_free());
  EXPECT_EQ(view.item<int64_t>(), 5);
  view.reset();
  EXPECT_TRUE(is_free());
}

TEST_F(HandOutTest, ABatchThatIsDroppedGivesItsSlotBack) {
  hand_out_batch({4, 5}, pair_of);
  EXPECT_FALSE(is_free());
  batch_.clear();
  EXPECT_TRUE(is_free());
}

TEST_F(HandOutTest, TensorsOutliveThePoolsOwner) {
  hand_out_batch({4, 5}, pair_of);
  const at::Tensor tensor = batch_.take_tensor();
  batch_.clear();
  const std::weak_ptr<SlotPool> watched = pool_;
  pool_.reset();
  EXPECT_TRUE(at::equal(tensor[0], at::full({2, 3}, 4.0, at::kDouble)));
  EXPECT_FALSE(watched.expired());
}

TEST_F(HandOutTest, TensorsMayBeDroppedByAnotherThread) {
  hand_out_batch({4, 5}, pair_of);
  std::thread([batch = std::exchange(batch_, {})] {}).join();
  EXPECT_TRUE(is_free());
}

TEST_F(HandOutTest, StringsAreCopiedAndHoldNoSlot) {
  hand_out_batch({3, 0}, [](size_t i) { return std::string(i, 'x') + std::string(1, '\0'); });
  EXPECT_TRUE(is_free());
  EXPECT_THAT(batch_.take_strings(), ElementsAre(std::string("xxx\0", 4), std::string("\0", 1)));
}

TEST_F(HandOutTest, StructureComesAlong) {
  hand_out_batch({1, 2}, [](size_t i) { return std::vector<size_t>{i, i, i}; });
  const auto batch = Codec<std::vector<size_t>>::gather(batch_);
  ASSERT_EQ(batch.size(), 3u);
  EXPECT_THAT(numbers(batch[2]), ElementsAre(1, 2));
}

TEST_F(HandOutTest, TensorsWithoutElementsHoldTheSlotLikeAnyOther) {
  hand_out_batch({1, 2}, [](size_t) { return at::empty({0, 3}, at::kInt); });
  at::Tensor tensor = batch_.take_tensor();
  batch_.clear();
  EXPECT_EQ(tensor.sizes(), at::IntArrayRef({2, 0, 3}));
  EXPECT_FALSE(is_free());
  tensor.reset();
  EXPECT_TRUE(is_free());
}

TEST_F(HandOutTest, ASampleWithoutLeavesIsABatchWithoutAny) {
  hand_out_batch({1, 2}, [](size_t) { return std::vector<int>(); });
  EXPECT_TRUE(batch_.leaves.empty());
  EXPECT_TRUE(is_free());
}

// Slots made after a batch has been seen have room for 64 such batches, or a gigabyte.
TEST_F(HandOutTest, ThePoolLearnsHowLargeBatchesAre) {
  hand_out_batch({1}, [](size_t) { return at::zeros({20 << 20}, at::kByte); });
  const uint64_t before = slot().bytes();
  const uint64_t after = pool_->control().slot(pool_->acquire(1).value()).bytes();
  EXPECT_LT(after, before);
  EXPECT_GE(after, 64 * (uint64_t{20} << 20));
}

}  // namespace
}  // namespace stoker::detail
