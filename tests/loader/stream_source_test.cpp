// SPDX-License-Identifier: BSD-3-Clause
#include "loader/stream_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "datasets.h"

namespace stoker::detail {
namespace {

using testing::ElementsAre;
using testing::Pair;

std::optional<size_t> no_size() { return std::nullopt; }

// Worker and first sample of the next tasks.
std::vector<std::pair<uint32_t, uint64_t>> next(StreamSource& source, int count) {
  std::vector<std::pair<uint32_t, uint64_t>> tasks;
  for (; count > 0; --count) {
    const auto task = source.next();
    if (!task) break;
    tasks.emplace_back(task->worker.value(), task->position);
  }
  return tasks;
}

TEST(StreamSourceTest, AsksTheWorkersByTurns) {
  const DataLoaderOptions options{.batch_size = 4, .num_workers = 2};
  StreamSource source(options, no_size);
  source.reset();
  EXPECT_THAT(next(source, 4), ElementsAre(Pair(0, 0), Pair(1, 0), Pair(0, 4), Pair(1, 4)));
  source.end_stream(0);
  EXPECT_THAT(next(source, 2), ElementsAre(Pair(1, 8), Pair(1, 12)));
  source.end_stream(1);
  EXPECT_FALSE(source.next());
  source.reset();
  EXPECT_THAT(next(source, 1), ElementsAre(Pair(0, 0)));
}

TEST(StreamSourceTest, TheCallerIsAStreamOfItsOwn) {
  const DataLoaderOptions options{.batch_size = 2};
  StreamSource source(options, no_size);
  source.reset();
  EXPECT_EQ(source.next()->num_samples, 2u);
  EXPECT_EQ(source.next()->position, 2u);
}

TEST(StreamSourceTest, ResumesBehindWhatWasDelivered) {
  const DataLoaderOptions options{.batch_size = 4, .num_workers = 3};
  StreamSource source(options, no_size);
  source.reset();
  next(source, 7);
  source.deliver({0, 4, 0, "a"});
  source.deliver({0, 4, 1, "b"});
  source.deliver({0, 3, 2, "c"});
  source.end_stream(2);
  source.deliver({4, 4, 0, "d"});
  const StateDict place = source.place();

  StreamSource other(options, no_size);
  other.reset();
  other.resume(place);
  const auto first = other.next();
  EXPECT_EQ(first->worker, 1u);
  EXPECT_EQ(first->position, 4u);
  EXPECT_EQ(first->stream_state, "b");
  EXPECT_EQ(other.next()->worker, 2u) << "its end is told again";
  other.end_stream(2);
  const auto second = other.next();
  EXPECT_EQ(second->worker, 0u);
  EXPECT_EQ(second->position, 8u);
  EXPECT_EQ(second->stream_state, "d");
  EXPECT_EQ(other.next()->stream_state, "") << "told once";
  EXPECT_EQ(other.place(), place);
}

TEST(StreamSourceTest, WhatIsGivenBackComesFirstAndInItsOrder) {
  const DataLoaderOptions options{.batch_size = 4, .num_workers = 2};
  StreamSource source(options, no_size);
  source.reset();
  const Task first = *source.next();
  const Task second = *source.next();
  source.give_back(second);
  source.give_back(first);
  EXPECT_THAT(next(source, 3), ElementsAre(Pair(0, 0), Pair(1, 0), Pair(0, 4)));
}

TEST(StreamSourceTest, ADamagedPlaceIsRefused) {
  const DataLoaderOptions options{.num_workers = 2};
  StreamSource source(options, no_size);
  source.reset();
  const StateDict good = source.place();
  const auto refused = [&](const char* name, StateDict::Value value) {
    StateDict place = good;
    place.set(name, std::move(value));
    source.reset();
    EXPECT_THROW(source.resume(place), std::invalid_argument) << name;
  };
  refused("turn", int64_t{2});
  refused("turn", int64_t{-1});
  refused("worker1.samples", int64_t{-4});
  refused("worker1.samples", std::string("4"));
  refused("worker1.samples", INT64_MAX / 2);
  EXPECT_THROW(source.resume({}), std::invalid_argument);
}

}  // namespace
}  // namespace stoker::detail
