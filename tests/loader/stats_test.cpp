// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <stoker/stats.h>

#include <sstream>

namespace stoker {
namespace {

using namespace std::chrono_literals;

TEST(StatsTest, ShareOfWaitingIsOfWaitingAndComputing) {
  EXPECT_DOUBLE_EQ((WaitStats{1, 1, 1s, 3s}.wait_share()), 0.25);
  EXPECT_DOUBLE_EQ((WaitStats{1, 1, 1s, 0s}.wait_share()), 1);
  EXPECT_DOUBLE_EQ((WaitStats{1, 1, 0s, 1s}.wait_share()), 0);
}

TEST(StatsTest, NoShareOfNoTime) { EXPECT_EQ(WaitStats{}.wait_share(), 0); }

TEST(StatsTest, AddsUp) {
  WaitStats sum{1, 20, 300ns, 4000ns};
  sum += {5, 60, 700ns, 8000ns};
  EXPECT_EQ(sum.batches, 6);
  EXPECT_EQ(sum.samples, 80);
  EXPECT_EQ(sum.waited, 1000ns);
  EXPECT_EQ(sum.computed, 12000ns);
}

TEST(StatsTest, PrintsTheEpochAndTheTotal) {
  std::ostringstream out;
  out << LoaderStats{2, {10, 640, 250ms, 750ms}, {20, 1280, 1s, 1s}, 12'340us};
  EXPECT_EQ(out.str(),
            "epoch 2: 10 batches, 640 samples; waited 0.250 s for data (25.0 %), computed "
            "0.750 s; first batch after 12.3 ms\n"
            "in all: 20 batches, 1280 samples; waited 1.000 s for data (50.0 %), computed 1.000 s");
}

TEST(StatsTest, PrintsHowManyWorkersWereReplacedIfAnyWere) {
  LoaderStats stats{2, {10, 640, 250ms, 750ms}, {20, 1280, 1s, 1s}, 12'340us};
  std::ostringstream none, some;
  none << stats;
  stats.restarts = 3;
  some << stats;
  EXPECT_EQ(some.str(), none.str() + "; workers replaced: 3");
}

TEST(StatsTest, PrintsHowBatchesArePinnedIfTheyAre) {
  const auto text = [](Pinning pinning) {
    LoaderStats stats{2, {10, 640, 250ms, 750ms}, {20, 1280, 1s, 1s}, 12'340us};
    stats.pinning = pinning;
    std::ostringstream out;
    out << stats;
    return out.str();
  };
  const std::string none = text(Pinning::kNone);
  EXPECT_EQ(text(Pinning::kInPlace), none + "; batches pinned in place");
  EXPECT_EQ(text(Pinning::kCopied), none + "; batches copied to pinned memory");
}

TEST(StatsTest, PrintsNothingsBeforeTheFirstEpoch) {
  std::ostringstream out;
  out << LoaderStats{};
  EXPECT_EQ(out.str(),
            "epoch 0: 0 batches, 0 samples; waited 0.000 s for data (0.0 %), computed 0.000 s; "
            "first batch after 0.0 ms\n"
            "in all: 0 batches, 0 samples; waited 0.000 s for data (0.0 %), computed 0.000 s");
}

// A whole year of waiting for the largest counts there are is printed in full.
TEST(StatsTest, PrintsLargeFigures) {
  std::ostringstream out;
  const WaitStats year{INT64_MAX, INT64_MAX, 8760h, 8760h};
  out << LoaderStats{INT64_MAX, year, year, 8760h};
  const std::string line =
      "9223372036854775807 batches, 9223372036854775807 samples; waited 31536000.000 s for data "
      "(50.0 %), computed 31536000.000 s";
  EXPECT_EQ(out.str(), "epoch 9223372036854775807: " + line +
                           "; first batch after 31536000000.0 ms\nin all: " + line);
}

}  // namespace
}  // namespace stoker
