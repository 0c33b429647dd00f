// SPDX-License-Identifier: BSD-3-Clause

// Belongs into order_test.cpp once RandomSampler's draws no longer depend on how far was prefetched.

#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/types.h>

#include <vector>

#include "datasets.h"

namespace stoker {
namespace {

// Python's, with generator=torch.Generator().manual_seed(42).
const std::vector<Numbers> kGenerator42 = {{6, 5, 4, 0, 8, 9, 2, 1, 3, 7},
                                           {3, 6, 5, 8, 9, 4, 2, 0, 7, 1},
                                           {7, 4, 5, 0, 9, 1, 3, 2, 8, 6}};

// Prefetching may have reached the end of the sampler by then, or not.
TEST(OrderTest, AnEpochLeftEarlyWithAGeneratorDrawsLikeAWholeOne) {
  for (const int64_t workers : {0, 2, 8}) {
    DataLoader loader(Counting{10}, {.shuffle = true, .num_workers = workers, .seed = 42});
    for (const Numbers& epoch : kGenerator42) {
      EXPECT_EQ(numbers(*loader.begin()), Numbers{epoch.front()}) << workers << " workers";
    }
  }
}

}  // namespace
}  // namespace stoker
