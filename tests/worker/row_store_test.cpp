// SPDX-License-Identifier: BSD-3-Clause
#include "worker/row_store.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "slot_memory.h"

namespace stoker::detail {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// Each sample is made in the same memory: two floats, both its index.
struct Scratch {
  std::vector<float>* memory;
  std::vector<size_t>* fetched;

  at::Tensor get(size_t index) const {
    fetched->push_back(index);
    memory->assign(2, static_cast<float>(index));
    return at::from_blob(memory->data(), {2});
  }
  size_t size() const { return 1000; }
};

class RowStoreTest : public testing::Test {
 protected:
  // What the batch of these indices holds.
  std::vector<float> filled(Filler& filler, const std::vector<int64_t>& indices) {
    const Slot slot = memory_.publish(indices);
    const uint32_t generation = slot.generation();
    const auto n = static_cast<uint32_t>(indices.size());
    Progress progress;
    slot.finish(filler.hand(slot, generation), filler.fill(slot, generation, {0, n}, progress));
    EXPECT_EQ(filler.complete(slot), SlotStatus::kReady);
    return column<float>(slot, 0);
  }

  HeapSlot memory_;
  std::vector<float> scratch_;
  std::vector<size_t> fetched_;
};

TEST_F(RowStoreTest, SamplesMadeInTheSameMemoryAreFetchedAgainOnce) {
  MapFetcher fetcher(Scratch{&scratch_, &fetched_});
  Filler filler(fetcher, 0, 1);
  EXPECT_THAT(filled(filler, {3, 1, 2}), ElementsAre(3, 3, 1, 1, 2, 2));
  EXPECT_THAT(fetched_, ElementsAre(3, 1, 2, 3, 1, 2));
  fetched_.clear();
  EXPECT_THAT(filled(filler, {4, 5, 6}), ElementsAre(4, 4, 5, 5, 6, 6));
  EXPECT_THAT(fetched_, ElementsAre(4, 5, 6));
}

TEST_F(RowStoreTest, TheSameSampleTwiceIsNoSuchCase) {
  const at::Tensor rows = at::arange(10, at::kFloat);
  MapFetcher fetcher(Made{10, [&](size_t index) {
                            fetched_.push_back(index);
                            return rows[static_cast<int64_t>(index)];
                          }});
  Filler filler(fetcher, 0, 1);
  EXPECT_THAT(filled(filler, {3, 3, 2, 2, 2}), ElementsAre(3, 3, 2, 2, 2));
  EXPECT_THAT(fetched_, ElementsAre(3, 3, 2, 2, 2));
}

TEST_F(RowStoreTest, SamplesOfAnySizeComeWhole) {
  for (const int64_t size : {0, 1, 127, 128, 129, 5000}) {
    MapFetcher fetcher(Made{10, [&](size_t index) {
                              return at::full({size}, static_cast<double>(index), at::kFloat);
                            }});
    Filler filler(fetcher, 0, 1);
    std::vector<float> expected;
    for (const float value : {3.f, 9.f, 3.f, 0.f}) {
      expected.insert(expected.end(), static_cast<size_t>(size), value);
    }
    EXPECT_THAT(filled(filler, {3, 9, 3, 0}), ElementsAreArray(expected)) << size;
  }
}

}  // namespace
}  // namespace stoker::detail
