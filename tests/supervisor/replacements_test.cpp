// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/replacements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <vector>

#include "slot_memory.h"

namespace stoker::detail {
namespace {

using testing::HasSubstr;

class ReplacementsTest : public testing::Test {
 protected:
  ReplacementsTest() : control_(memory_.control()) {}

  // Worker `id` dies at row `row` of a batch of 10, 11, 12, 13 in slot 0.
  WorkerRecord& dies_at(uint32_t row, uint32_t id = 0) {
    if (control_.published() == 0) {
      slot_.publish({{10, 11, 12, 13}}, 0, {});
      control_.publish(0);
    }
    WorkerRecord& worker = control_.worker(id);
    worker.work_on(0, 0);
    worker.progress.row = row;
    worker.wait_status = SIGKILL;
    if (row != Progress::kNoRow) slot_.own(row < 4 ? row : 0, Slot::worker(0, id));
    return worker;
  }
  bool allow(Replacements& replacements, WorkerRecord& worker) {
    const bool allowed = replacements.allow(worker);
    if (allowed) control_.disown(worker.id);
    return allowed;
  }

  HeapSlots memory_{2, 1};
  Control& control_;
  Slot slot_ = control_.slot(0);
};

TEST_F(ReplacementsTest, NobodyIsReplacedWithoutRestarts) {
  Replacements none(control_, {});
  WorkerRecord& worker = dies_at(1);
  EXPECT_FALSE(allow(none, worker));
  EXPECT_EQ(worker.final, Final::kNoRestarts);
}

TEST_F(ReplacementsTest, SoManyPerEpoch) {
  Replacements two(control_, {.max_restarts = 2});
  for (const uint32_t epoch : {1u, 2u}) {
    control_.epochs() = epoch;
    EXPECT_TRUE(allow(two, dies_at(0)));
    EXPECT_TRUE(allow(two, dies_at(1)));
    WorkerRecord& third = dies_at(2);
    EXPECT_FALSE(allow(two, third));
    EXPECT_EQ(third.final, Final::kRestartsSpent);
    control_.disown(third.id);
  }
}

TEST_F(ReplacementsTest, ASampleMayEndOneWorkerOfAny) {
  Replacements many(control_, {.max_restarts = 9});
  EXPECT_TRUE(allow(many, dies_at(1, 0)));
  EXPECT_TRUE(allow(many, dies_at(2, 0)));
  WorkerRecord& second = dies_at(1, 1);
  EXPECT_FALSE(allow(many, second));
  EXPECT_EQ(second.final, Final::kKilledTwice);
}

TEST_F(ReplacementsTest, ABatchThatIsPublishedAgainIsTheSameButNotThatOfAnEpochThatWasLeft) {
  HeapSlots memory(2, 3);
  Control& control = memory.control();
  const auto dies_in = [&](uint32_t id, int64_t epoch) -> WorkerRecord& {
    const Slot slot = control.slot(id);
    slot.publish({{10, 11}}, control.published(), {.epoch = epoch});
    control.publish(id);
    WorkerRecord& worker = control.worker(0);
    worker.work_on(id, slot.generation());
    worker.progress.row = 1;
    slot.own(1, Slot::worker(slot.generation(), 0));
    return worker;
  };
  Replacements many(control, {.max_restarts = 9});
  EXPECT_TRUE(many.allow(dies_in(0, 1)));
  EXPECT_TRUE(many.allow(dies_in(1, 2)));
  EXPECT_FALSE(many.allow(dies_in(2, 1)));
}

TEST_F(ReplacementsTest, WhatIsDoneIsNotToBlame) {
  Replacements many(control_, {.max_restarts = 9});
  EXPECT_TRUE(allow(many, dies_at(1)));
  for (int i = 0; i < 2; ++i) {
    WorkerRecord& worker = dies_at(1);
    slot_.settle(1, Slot::worker(0, 0), RowState::kInRows);
    EXPECT_TRUE(allow(many, worker));
  }
  control_.worker(0).claim = WorkerRecord::kIdle;
  EXPECT_TRUE(allow(many, control_.worker(0)));
  EXPECT_TRUE(allow(many, control_.worker(0)));
}

TEST_F(ReplacementsTest, ARecordThatWasWrittenOverTellsOfNoSample) {
  Replacements many(control_, {.max_restarts = 9, .condemns = true});
  for (const uint64_t claim : {uint64_t{77} << 32, ~uint64_t{1}, uint64_t{5}}) {
    WorkerRecord& worker = dies_at(Progress::kAllRows);
    for (int i = 0; i < 2; ++i) {
      worker.claim = claim;
      EXPECT_TRUE(many.allow(worker));
    }
  }
}

TEST_F(ReplacementsTest, AnEndInCollationIsTheBatchs) {
  Replacements many(control_, {.max_restarts = 9, .condemns = true});
  EXPECT_TRUE(allow(many, dies_at(Progress::kNoRow)));
  WorkerRecord& second = dies_at(Progress::kNoRow);
  EXPECT_FALSE(allow(many, second));
  EXPECT_EQ(second.final, Final::kBatchKilledTwice);
}

TEST_F(ReplacementsTest, TheSampleIsCondemnedAndTold) {
  Replacements many(control_, {.max_restarts = 9, .condemns = true});
  EXPECT_TRUE(allow(many, dies_at(1)));
  EXPECT_FALSE(slot_.is_condemned(1));
  EXPECT_TRUE(allow(many, dies_at(1, 1)));
  EXPECT_TRUE(slot_.is_condemned(1));
  EXPECT_FALSE(slot_.is_condemned(2));
  EXPECT_EQ(slot_.failures()[2], 0u);
  const Failure failure = load_failure(slot_, slot_.failures()[1]);
  EXPECT_EQ(failure.index, 11);
  EXPECT_EQ(failure.worker_id, 1);
  EXPECT_THAT(failure.text, HasSubstr("; the same sample had ended a worker before"));

  // It is told for the row, and not fetched.
  std::vector<size_t> fetched;
  MapFetcher fetcher(Made{20, [&](size_t index) {
                            fetched.push_back(index);
                            return static_cast<int64_t>(index);
                          }});
  Filler filler(fetcher, 0, 2, {.on_error = OnError::kSkip});
  Progress progress;
  EXPECT_EQ(filler.fill(slot_, 0, {0, 4}, progress), 4u);
  EXPECT_EQ(fetched, (std::vector<size_t>{10, 12, 13}));
  EXPECT_EQ(slot_.state(1), RowState::kBad);
  EXPECT_EQ(load_failure(slot_, slot_.records()[1]).text, failure.text);
}

TEST_F(ReplacementsTest, AWholeBatchIsFetchedOneByOneFirst) {
  Replacements many(control_, {.max_restarts = 9, .whole_batches = true, .condemns = true});
  EXPECT_TRUE(allow(many, dies_at(Progress::kAllRows)));
  EXPECT_TRUE(allow(many, dies_at(Progress::kAllRows)));
  EXPECT_FALSE(slot_.is_condemned(0));
  EXPECT_EQ(slot_.header().one_by_one, 1u);
  EXPECT_TRUE(allow(many, dies_at(0)));
  EXPECT_FALSE(slot_.is_condemned(0));
  EXPECT_TRUE(allow(many, dies_at(0)));
  EXPECT_TRUE(slot_.is_condemned(0));
}

TEST_F(ReplacementsTest, NoSampleIsToBlameForABatchThatEndsWorkersAlsoWhenNoSampleAloneDoes) {
  Replacements many(control_, {.max_restarts = 9, .whole_batches = true, .condemns = true});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(allow(many, dies_at(Progress::kAllRows)));
  WorkerRecord& last = dies_at(Progress::kAllRows);
  EXPECT_FALSE(allow(many, last));
  EXPECT_EQ(last.final, Final::kBatchKilledTwice);
  EXPECT_FALSE(slot_.is_condemned(0));
}

}  // namespace
}  // namespace stoker::detail
