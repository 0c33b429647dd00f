// SPDX-License-Identifier: BSD-3-Clause

// A shuffled, augmented epoch runs again and again while workers are killed at random. Every
// epoch's bytes must be those of an undisturbed one. STOKER_SOAK_SECONDS says for how long;
// scripts/soak.sh.

#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/types.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <tuple>

#include "datasets.h"
#include "digest.h"
#include "processes.h"
#include "support.h"

namespace stoker {
namespace {

std::chrono::seconds soak_time() {
  const char* given = std::getenv("STOKER_SOAK_SECONDS");
  return std::chrono::seconds(given != nullptr ? std::atol(given) : 3);
}

// Kills a random worker of this program every few milliseconds.
class Killer {
 public:
  explicit Killer(uint64_t seed) : random_(seed), thread_([this] { run(); }) {}
  ~Killer() { stop(); }

  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int64_t kills() const { return kills_; }

 private:
  void run() {
    while (!stop_) {
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 40'000));
      const auto supervisors = children_of(getpid());
      if (supervisors.empty()) continue;
      const auto workers = children_of(supervisors.front());
      if (workers.empty()) continue;
      if (kill(workers[random_() % workers.size()], SIGKILL) == 0) ++kills_;
    }
  }

  std::mt19937_64 random_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> kills_{0};
  std::thread thread_;
};

template <class Loader>
std::pair<uint64_t, Numbers> epoch_digest(Loader& loader) {
  Digest digest;
  Numbers indices;
  for (auto& [values, index] : loader) {
    digest.add(values);
    digest.add(index);
    for (const int64_t i : numbers(index)) indices.push_back(i);
  }
  std::sort(indices.begin(), indices.end());
  return {digest.value(), indices};
}

TEST(SoakTest, EveryEpochIsWholeWhoeverIsKilled) {
  constexpr int64_t kSamples = 3000;
  const auto augmented = Made{kSamples, [](size_t index) {
                                // Samples of 20 to 400 us, some with strings of their own length.
                                at::Tensor values = at::rand({16 + 16 * int64_t(index % 7 == 0)});
                                for (size_t i = 0; i < index % 40; ++i) values = values.sin();
                                return std::tuple(values.slice(0, 0, 16) + std::rand() % 1000,
                                                  static_cast<int64_t>(index));
                              }};
  DataLoaderOptions options{.batch_size = 24, .shuffle = true, .seed = test_seed()};
  DataLoader undisturbed(augmented, options);
  options.num_workers = 3;
  options.max_restarts = 1'000'000;
  DataLoader disturbed(augmented, options);
  Killer killer(test_seed());
  int64_t epochs = 0;
  int64_t coincidences = 0;  // two kills hit the same sample, which is to be reported
  const auto end = Clock::now() + soak_time();
  while (Clock::now() < end) {
    const auto expected = epoch_digest(undisturbed);
    ASSERT_EQ(expected.second, up_to(kSamples));
    try {
      const auto came = epoch_digest(disturbed);
      ASSERT_EQ(came.second, up_to(kSamples)) << "epoch " << epochs;
      ASSERT_EQ(came.first, expected.first) << "epoch " << epochs;
      ++epochs;
    } catch (const WorkerError& error) {
      ASSERT_NE(std::string(error.what()).find("had ended a worker before"), std::string::npos)
          << error.what();
      ++coincidences;
    }
  }
  killer.stop();
  std::cout << epochs << " epochs whole and as undisturbed; " << disturbed.stats().restarts
            << " workers killed and replaced; " << coincidences
            << " epochs ended by two kills in one sample" << std::endl;
  EXPECT_GT(epochs, 0);
  EXPECT_GT(disturbed.stats().restarts, 0);
}

}  // namespace
}  // namespace stoker
