// SPDX-License-Identifier: BSD-3-Clause
#include "worker/stream_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/detail/fetchers.h>

#include <optional>

#include "datasets.h"

namespace stoker::detail {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// 0 .. 9, and how often the stream was opened.
struct Ten {
  int* opened;

  struct Stream {
    int64_t at = 0;
    std::optional<int64_t> next() { return at == 10 ? std::nullopt : std::optional(at++); }
  };
  Stream stream() const {
    ++*opened;
    return {};
  }
};

class StreamReaderTest : public testing::Test {
 protected:
  // What a batch of n yields.
  static Numbers read(StreamReader& reader, const Origin& batch, int n) {
    if (reader.must_open(batch)) reader.open(batch, "");
    reader.skip_to(batch);
    Numbers all;
    for (; n > 0; --n) {
      reader.skip_others();
      const FlatSample* const sample = reader.next();
      if (sample == nullptr) break;
      int64_t number = 0;
      std::memcpy(&number, sample->leaves()[0].number.data(), sizeof number);
      all.push_back(number);
    }
    return all;
  }

  int opened_ = 0;
  StreamFetcher<Ten> fetcher_{Ten{&opened_}};
};

TEST_F(StreamReaderTest, BatchesThatFollowEachOtherShareAStream) {
  StreamReader reader(fetcher_, 1, 2, Shard::kNone, 4);
  EXPECT_THAT(read(reader, {.first_position = 0}, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(read(reader, {.first_position = 4}, 4), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(read(reader, {.first_position = 8}, 4), ElementsAre(8, 9));
  EXPECT_THAT(read(reader, {.first_position = 12}, 4), IsEmpty());
  EXPECT_EQ(opened_, 1);
}

TEST_F(StreamReaderTest, ANewEpochAndAnEarlierPlaceOpenItAnew) {
  StreamReader reader(fetcher_, 0, 1, Shard::kNone, 4);
  read(reader, {.epoch = 0}, 4);
  EXPECT_THAT(read(reader, {.epoch = 1}, 2), ElementsAre(0, 1));
  EXPECT_THAT(read(reader, {.epoch = 1, .first_position = 6}, 2), ElementsAre(6, 7));
  EXPECT_THAT(read(reader, {.epoch = 1, .first_position = 3}, 2), ElementsAre(3, 4));
  EXPECT_THAT(read(reader, {.epoch = 1, .epoch_seed = 5, .first_position = 5}, 2),
              ElementsAre(5, 6));
  EXPECT_EQ(opened_, 4);
}

TEST_F(StreamReaderTest, AShareIsEverySoManyth) {
  StreamReader second(fetcher_, 1, 3, Shard::kSamples, 4);
  EXPECT_THAT(read(second, {.first_position = 0}, 2), ElementsAre(1, 4));
  EXPECT_THAT(read(second, {.first_position = 2}, 2), ElementsAre(7));
  EXPECT_THAT(read(second, {.first_position = 1}, 2), ElementsAre(4, 7));
  EXPECT_THAT(read(second, {.epoch = 1, .first_position = 2}, 2), ElementsAre(7));
}

TEST_F(StreamReaderTest, PositionsOfTwoStreamsDiffer) {
  const StreamReader first(fetcher_, 0, 2, Shard::kSamples, 4);
  const StreamReader second(fetcher_, 1, 2, Shard::kSamples, 4);
  EXPECT_EQ(first.position(3), 6u);
  EXPECT_EQ(second.position(3), 7u);
}

TEST_F(StreamReaderTest, TakesItsShareInRunsOfSamplesOrOfBatches) {
  StreamReader samples(fetcher_, 1, 2, Shard::kSamples, 2);
  EXPECT_THAT(read(samples, {.first_position = 0}, 2), ElementsAre(1, 3));
  EXPECT_THAT(read(samples, {.first_position = 2}, 2), ElementsAre(5, 7));
  EXPECT_EQ(samples.position(3), 7u);
  StreamReader batches(fetcher_, 1, 2, Shard::kBatches, 2);
  EXPECT_THAT(read(batches, {.first_position = 0}, 2), ElementsAre(2, 3));
  EXPECT_THAT(read(batches, {.first_position = 2}, 2), ElementsAre(6, 7));
  EXPECT_THAT(read(batches, {.first_position = 4}, 2), IsEmpty());
  EXPECT_EQ(batches.position(3), 7u);
  StreamReader replacement(fetcher_, 1, 2, Shard::kBatches, 2);
  EXPECT_THAT(read(replacement, {.first_position = 2}, 2), ElementsAre(6, 7));
}

}  // namespace
}  // namespace stoker::detail
