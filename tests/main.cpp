// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <string_view>
#include <thread>

#include "support.h"

namespace stoker {
namespace {

uint64_t seed = 0;

std::optional<uint64_t> parse_seed(std::string_view text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// Nothing if what was given is no number.
std::optional<uint64_t> choose_seed(int argc, char** argv) {
  constexpr std::string_view kFlag = "--seed=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with(kFlag)) return parse_seed(argument.substr(kFlag.size()));
  }
  if (const char* given = std::getenv("STOKER_TEST_SEED")) return parse_seed(given);
  return std::random_device()();
}

// Promise: a loader leaves no process behind. A child that has just been told to go may need a
// moment to be gone.
bool children_gone_within(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid == -1 && errno == ECHILD) return true;
    // A child found dead is one that the loader did not wait for: a zombie.
    if (pid > 0 || std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

class WholeRun : public testing::Environment {
 public:
  void SetUp() override { std::cout << "STOKER_TEST_SEED=" << seed << std::endl; }
  void TearDown() override {
    EXPECT_TRUE(children_gone_within(std::chrono::seconds(1)))
        << "the tests left a child process, running or not waited for";
  }
};

}  // namespace

uint64_t test_seed() { return seed; }

}  // namespace stoker

#ifdef __SANITIZE_ADDRESS__
// A forked child of a program that has libtorch's thread pool leaks it on purpose: its threads are
// gone. It shows where a worker calls exit().
extern "C" const char* __lsan_default_suppressions() { return "leak:caffe2::pthreadpool\n"; }
#endif

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const std::optional<uint64_t> seed = stoker::choose_seed(argc, argv);
  if (!seed) {
    std::cerr << "--seed and STOKER_TEST_SEED take a number from 0 to 2^64 - 1\n";
    return 2;
  }
  stoker::seed = *seed;
  testing::AddGlobalTestEnvironment(new stoker::WholeRun);
  return RUN_ALL_TESTS();
}
