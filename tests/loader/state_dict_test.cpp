// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/state_dict.h>
#include <torch/csrc/api/include/torch/serialize/archive.h>

#include <cstdint>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>

#include "datasets.h"

namespace stoker {
namespace {

using testing::HasSubstr;

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

std::string all_bytes() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  return bytes;
}

StateDict example() {
  StateDict state;
  state.set("least", kLeast);
  state.set("most", kMost);
  state.set("bytes", all_bytes());
  state.set("empty", std::string());
  return state;
}

TEST(StateDictTest, GivesBackWhatWasSet) {
  StateDict state = example();
  EXPECT_EQ(state.integer("least"), kLeast);
  EXPECT_EQ(state.text("bytes"), all_bytes());
  state.set("least", int64_t{1});
  EXPECT_EQ(state.integer("least"), 1);
}

TEST(StateDictTest, SaysWhatIsMissingOrOfAnotherKind) {
  const StateDict state = example();
  const auto text = [&](auto action) { return text_of<std::invalid_argument>(action); };
  EXPECT_THAT(text([&] { state.integer("epoch"); }), HasSubstr("the state has no 'epoch'"));
  EXPECT_THAT(text([&] { state.integer("bytes"); }),
              HasSubstr("'bytes' of the state is not an integer"));
  EXPECT_THAT(text([&] { state.text("most"); }), HasSubstr("'most' of the state is not a text"));
}

TEST(StateDictTest, PartsKeepTheirNamesBehindAPrefix) {
  StateDict whole;
  whole.set("batches", int64_t{3});
  whole.set("sampler2.epoch", int64_t{5});
  whole.insert("sampler", example());
  EXPECT_EQ(whole.text("sampler.bytes"), all_bytes());
  EXPECT_EQ(whole.extract("sampler"), example());
  EXPECT_TRUE(whole.extract("dataset").empty());
}

TEST(StateDictTest, IsTheSameAfterJson) {
  EXPECT_EQ(StateDict::from_json(example().to_json()), example());
  EXPECT_EQ(StateDict::from_json(StateDict().to_json()), StateDict());
  for (const char c : example().to_json()) EXPECT_TRUE(c >= ' ' && c <= '~') << int{c};
}

TEST(StateDictTest, RefusesJsonThatItDidNotWrite) {
  for (const char* json : {"", "{", "[]", "3", "{\"a\": 1.5}", "{\"a\": null}", "{\"a\": {}}",
                           "{\"a\": 18446744073709551615}", "{\"a\": \"\\u20ac\"}", "{} {}"}) {
    EXPECT_THROW(StateDict::from_json(json), std::invalid_argument) << json;
  }
}

TEST(StateDictTest, IsTheSameAfterAnArchive) {
  std::stringstream file;
  {
    torch::serialize::OutputArchive archive;
    torch::serialize::OutputArchive part;
    example().save(part);
    archive.write("loader", part);
    archive.save_to(file);
  }
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  torch::serialize::InputArchive part;
  archive.read("loader", part);
  StateDict state;
  state.load(part);
  EXPECT_EQ(state, example());
}

TEST(StateDictTest, AnArchiveWithoutAStateIsRefused) {
  std::stringstream file;
  torch::serialize::OutputArchive().save_to(file);
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  StateDict state;
  EXPECT_THROW(state.load(archive), std::invalid_argument);
}

}  // namespace
}  // namespace stoker
