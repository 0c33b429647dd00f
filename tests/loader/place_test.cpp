// SPDX-License-Identifier: BSD-3-Clause
#include "loader/place.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace stoker::detail {
namespace {

TEST(PlaceTest, CountsBatchesInTheirOrder) {
  Place place;
  place.deliver(0, 4);
  place.deliver(4, 3);
  EXPECT_EQ(place.batches(), 2);
  EXPECT_EQ(place.samples(), 7U);
  EXPECT_TRUE(place.was_delivered(4));
  EXPECT_FALSE(place.was_delivered(7));
}

TEST(PlaceTest, RemembersBatchesThatCameBeforeTheirTurn) {
  Place place;
  place.deliver(8, 4);
  place.deliver(16, 4);
  EXPECT_EQ(place.batches(), 0);
  EXPECT_TRUE(place.was_delivered(8));
  EXPECT_FALSE(place.was_delivered(12));
  place.deliver(0, 4);
  EXPECT_EQ(place.batches(), 1);
  place.deliver(4, 4);
  EXPECT_EQ(place.batches(), 3);
  EXPECT_EQ(place.samples(), 12U);
  EXPECT_TRUE(place.was_delivered(16));
}

TEST(PlaceTest, IsTheSameAfterItsState) {
  Place place;
  place.deliver(0, 4);
  place.deliver(8, 4);
  place.deliver(20, 1);
  Place other = Place::from(place.state_dict());
  EXPECT_EQ(other.state_dict(), place.state_dict());
  EXPECT_FALSE(other.was_delivered(4));
  other.deliver(4, 4);
  EXPECT_EQ(other.batches(), 3);
  EXPECT_EQ(other.samples(), 12U);
}

TEST(PlaceTest, ADamagedStateIsRefused) {
  const auto refused = [](const char* name, StateDict::Value value) {
    StateDict state = Place().state_dict();
    state.set(name, std::move(value));
    EXPECT_THROW(Place::from(state), std::invalid_argument) << name;
  };
  refused("batches", int64_t{-1});
  refused("samples", int64_t{-1});
  refused("samples", std::string("3"));
  for (const char* ahead : {"8", "8 0", "0 4", "x", "8 4 y", "-8 4"}) {
    refused("ahead", std::string(ahead));
  }
  EXPECT_THROW(Place::from({}), std::invalid_argument);
}

}  // namespace
}  // namespace stoker::detail
