// SPDX-License-Identifier: BSD-3-Clause
#include "loader/checked_options.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stoker/samplers.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "memory/seed.h"
#include "slot_memory.h"

namespace stoker::detail {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

const auto kSampler = std::make_shared<SequentialSampler>(10);
const auto kBatchSampler = std::make_shared<BatchSampler>(kSampler, 2, false);

std::string refusal(const DataLoaderOptions& options) {
  return text_of<std::invalid_argument>([&] { checked(options); });
}

#define EXPECT_REFUSED(option, ...)                   \
  EXPECT_THAT(refusal(DataLoaderOptions __VA_ARGS__), \
              AllOf(StartsWith("stoker: "), HasSubstr(option)))

TEST(CheckedOptionsTest, Defaults) { EXPECT_NO_THROW(checked({})); }

TEST(CheckedOptionsTest, BatchSizeIsPositive) {
  EXPECT_REFUSED("batch_size is 0; it must be 1 or more", {.batch_size = 0});
  EXPECT_REFUSED("batch_size is -4;", {.batch_size = -4});
  EXPECT_REFUSED("batch_size is 4294967296;", {.batch_size = int64_t{1} << 32});
  EXPECT_NO_THROW(checked({.batch_size = std::numeric_limits<int32_t>::max()}));
}

TEST(CheckedOptionsTest, NumWorkersIsNoneOrMore) {
  EXPECT_REFUSED("num_workers is -1; it must be 0", {.num_workers = -1});
  EXPECT_REFUSED("num_workers is 4097; at most 4096", {.num_workers = 4097});
  EXPECT_NO_THROW(checked({.num_workers = 1}));
}

TEST(CheckedOptionsTest, TimeoutIsNoneOrMoreAndNeedsWorkers) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_REFUSED("timeout is -1 s; it must be finite, and 0", {.num_workers = 1, .timeout = -1s});
  EXPECT_REFUSED("timeout is inf s;",
                 {.num_workers = 1, .timeout = std::chrono::duration<double>(kInfinite)});
  EXPECT_REFUSED("timeout is nan s;",
                 {.num_workers = 1, .timeout = std::chrono::duration<double>(kNan)});
  EXPECT_REFUSED("timeout is 0.5 s with num_workers = 0", {.timeout = 500ms});
  EXPECT_NO_THROW(checked({.num_workers = 1, .timeout = 500ms}));
}

TEST(CheckedOptionsTest, MaxRestartsIsNoneOrMoreAndNeedsWorkers) {
  EXPECT_REFUSED("max_restarts is -1; it must be 0 (report every death) or more",
                 {.num_workers = 1, .max_restarts = -1});
  EXPECT_REFUSED("max_restarts is -1;", {.max_restarts = -1});
  EXPECT_REFUSED("max_restarts is 4294967296;",
                 {.num_workers = 1, .max_restarts = int64_t{1} << 32});
  EXPECT_REFUSED(
      "max_restarts is 3 with num_workers = 0, where nothing can be restarted; remove it, or use "
      "workers",
      {.max_restarts = 3});
  EXPECT_NO_THROW(checked({.max_restarts = 0}));
  EXPECT_NO_THROW(checked({.num_workers = 1, .max_restarts = 3}));
  EXPECT_NO_THROW(checked({.num_workers = 1, .max_restarts = std::numeric_limits<int32_t>::max()}));
}

TEST(CheckedOptionsTest, SampleTimeoutIsNoneOrMoreAndNeedsWorkers) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_REFUSED("stoker: sample_timeout is -1 s; it must be finite, and 0 (no limit) or more",
                 {.num_workers = 1, .sample_timeout = -1s});
  EXPECT_REFUSED("sample_timeout is inf s;",
                 {.num_workers = 1, .sample_timeout = std::chrono::duration<double>(kInfinite)});
  EXPECT_REFUSED("sample_timeout is -inf s;",
                 {.num_workers = 1, .sample_timeout = std::chrono::duration<double>(-kInfinite)});
  EXPECT_REFUSED("sample_timeout is nan s;",
                 {.num_workers = 1, .sample_timeout = std::chrono::duration<double>(kNan)});
  EXPECT_REFUSED(
      "sample_timeout is 0.5 s with num_workers = 0, where nothing can be killed; remove it, or "
      "use workers",
      {.sample_timeout = 500ms});
  EXPECT_NO_THROW(checked({.sample_timeout = 0s}));
  EXPECT_NO_THROW(checked({.num_workers = 1, .sample_timeout = 500ms}));
}

TEST(CheckedOptionsTest, SharedMemoryLimitIsPositive) {
  EXPECT_REFUSED("shared_memory_limit is 0 bytes; leave it out for half of the memory available",
                 {.shared_memory_limit = 0});
  EXPECT_NO_THROW(checked({.shared_memory_limit = 1}));
  EXPECT_NO_THROW(checked({.num_workers = 1, .shared_memory_limit = UINT64_MAX}));
}

TEST(CheckedOptionsTest, PrefetchFactorIsPositiveAndNeedsWorkers) {
  EXPECT_REFUSED("prefetch_factor is 0; it must be 1 or more",
                 {.num_workers = 1, .prefetch_factor = 0});
  EXPECT_REFUSED("prefetch_factor is -2;", {.num_workers = 1, .prefetch_factor = -2});
  EXPECT_REFUSED("prefetch_factor is 2 with num_workers = 0", {.prefetch_factor = 2});
  EXPECT_REFUSED("prefetch_factor is 8193; with 1 workers at most 8192 is possible",
                 {.num_workers = 1, .prefetch_factor = 8193});
  EXPECT_REFUSED("prefetch_factor is 9223372036854775807;",
                 {.num_workers = 1, .prefetch_factor = INT64_MAX});
  EXPECT_NO_THROW(checked({.num_workers = 1, .prefetch_factor = 8192}));
}

TEST(CheckedOptionsTest, AnOrderIsGivenOnce) {
  EXPECT_REFUSED("sampler and shuffle exclude each other", {.shuffle = true, .sampler = kSampler});
  EXPECT_REFUSED("batch_sampler and batch_size (2) exclude each other",
                 {.batch_size = 2, .batch_sampler = kBatchSampler});
  EXPECT_REFUSED("batch_sampler and shuffle exclude each other",
                 {.shuffle = true, .batch_sampler = kBatchSampler});
  EXPECT_REFUSED("batch_sampler and sampler exclude each other",
                 {.sampler = kSampler, .batch_sampler = kBatchSampler});
  EXPECT_REFUSED("batch_sampler and drop_last exclude each other",
                 {.batch_sampler = kBatchSampler, .drop_last = true});
  EXPECT_NO_THROW(checked({.batch_size = 3, .sampler = kSampler, .drop_last = true}));
  EXPECT_NO_THROW(checked({.batch_sampler = kBatchSampler}));
  EXPECT_NO_THROW(checked({.batch_size = 3, .shuffle = true, .drop_last = true}));
}

TEST(CheckedOptionsTest, SkippingGoesWithRanksOnlyWhereTheyMayDiffer) {
  const auto options = [](DistributedSamplerOptions ranks) {
    return DataLoaderOptions{.batch_size = 8,
                             .sampler = std::make_shared<DistributedSampler>(144, ranks),
                             .on_error = OnError::kSkip};
  };
  const char* const refused = "on_error is kSkip with a DistributedSampler that gives all ranks";
  EXPECT_THAT(refusal(options({.num_replicas = 2})),
              AllOf(HasSubstr(refused), HasSubstr("; use kSubstitute, or padding = false")));
  EXPECT_THAT(refusal(options({.num_replicas = 2, .drop_last = true})), HasSubstr(refused));
  EXPECT_NO_THROW(checked(options({.num_replicas = 1})));
  EXPECT_NO_THROW(checked(options({.num_replicas = 2, .padding = false})));
  DataLoaderOptions substituting = options({.num_replicas = 2});
  substituting.on_error = OnError::kSubstitute;
  EXPECT_NO_THROW(checked(substituting));
}

TEST(CheckedOptionsTest, SkippingNeedsBatchesInOrder) {
  EXPECT_REFUSED(
      "on_error is kSkip with in_order = false, where it would depend on the workers which samples "
      "fill up a batch; leave in_order true, or use kSubstitute",
      {.batch_size = 2, .in_order = false, .on_error = OnError::kSkip});
  EXPECT_NO_THROW(checked({.batch_size = 2, .in_order = false, .on_error = OnError::kSubstitute}));
}

TEST(CheckedOptionsTest, RandomnessHasOneSource) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  EXPECT_REFUSED("generator and seed exclude each other", {.generator = generator, .seed = 1});
  EXPECT_REFUSED("generator is undefined", {.generator = at::Generator()});
  EXPECT_EQ(checked({.generator = generator}).generator, generator);
}

TEST(CheckedOptionsTest, ASeedMakesAGeneratorOfTheLoadersOwn) {
  EXPECT_FALSE(checked({}).generator);
  const DataLoaderOptions one = checked({.seed = 7});
  const DataLoaderOptions other = checked({.seed = 7});
  ASSERT_TRUE(one.generator && other.generator);
  EXPECT_NE(*one.generator, *other.generator);
  EXPECT_EQ(one.generator->current_seed(), 7u);
  EXPECT_EQ(draw_seed(one.generator), draw_seed(other.generator));
}

// The ends of those texts of which the tests above have the beginnings.
TEST(CheckedOptionsTest, ARefusalSaysWhatToDo) {
  EXPECT_REFUSED("it must be 1 or more, and fit 32 bits", {.batch_size = 0});
  EXPECT_REFUSED("it must be 0 (fetch in the calling thread) or more", {.num_workers = -1});
  EXPECT_REFUSED("at most 4096 are possible, and one or two per core are usual",
                 {.num_workers = 4097});
  EXPECT_REFUSED("it must be finite, and 0 (no limit) or more", {.num_workers = 1, .timeout = -1s});
  EXPECT_REFUSED("where nothing can time out; remove it, or use workers", {.timeout = 1s});
  EXPECT_REFUSED("where nothing is prefetched; remove it, or use workers", {.prefetch_factor = 2});
  EXPECT_REFUSED("; shuffle in the sampler", {.shuffle = true, .sampler = kSampler});
  EXPECT_REFUSED("; the batch_sampler says how large batches are",
                 {.batch_size = 2, .batch_sampler = kBatchSampler});
  EXPECT_REFUSED("; shuffle in the batch_sampler",
                 {.shuffle = true, .batch_sampler = kBatchSampler});
  EXPECT_REFUSED("; give one of them", {.sampler = kSampler, .batch_sampler = kBatchSampler});
  EXPECT_REFUSED("; leave batches out in the batch_sampler",
                 {.batch_sampler = kBatchSampler, .drop_last = true});
  EXPECT_REFUSED("; give one of them",
                 {.generator = at::make_generator<at::CPUGeneratorImpl>(1), .seed = 1});
  EXPECT_REFUSED("; make one, or leave it out", {.generator = at::Generator()});
}

TEST(CheckedOptionsTest, TheFirstTroubleIsTold) {
  EXPECT_REFUSED("batch_size is 0", {.batch_size = 0, .num_workers = -1});
}

// A generator of another device, as far as the options look at it.
struct OtherDevice final : c10::GeneratorImpl {
  OtherDevice() : GeneratorImpl(c10::Device(c10::kPrivateUse1, 0), c10::DispatchKeySet()) {}
  void set_current_seed(uint64_t) override {}
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
  uint64_t current_seed() const override { return 0; }
  uint64_t seed() override { return 0; }
  void set_state(const c10::TensorImpl&) override {}
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return nullptr; }
  OtherDevice* clone_impl() const override { return nullptr; }
};

TEST(CheckedOptionsTest, AGeneratorIsOneForTheCpu) {
  EXPECT_REFUSED(
      "generator is one for privateuseone:0; give one for the CPU "
      "(at::detail::createCPUGenerator)",
      {.generator = at::make_generator<OtherDevice>()});
}

// Collects torch's warnings.
class Warnings : public c10::WarningHandler {
 public:
  Warnings() { c10::WarningUtils::set_warning_handler(this); }
  ~Warnings() override { c10::WarningUtils::set_warning_handler(before_); }
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }

  std::vector<std::string> texts;

 private:
  c10::WarningHandler* before_ = c10::WarningUtils::get_warning_handler();
};

TEST(CheckedOptionsTest, WarnsOfMoreWorkersThanCores) {
  cpu_set_t cpus;
  ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
  const int64_t cores = CPU_COUNT(&cpus);
  Warnings warnings;
  checked({.num_workers = cores});
  EXPECT_THAT(warnings.texts, IsEmpty());
  checked({.num_workers = cores + 1});
  EXPECT_THAT(warnings.texts,
              ElementsAre("stoker: num_workers is " + std::to_string(cores + 1) +
                          ", but this process may use only " + std::to_string(cores) +
                          " cores; more workers than cores can slow down loading and training"));
}

TEST(CheckedOptionsTest, TheWarningSaysWhereOpenMpMayHavePinnedTheThread) {
  for (const char* const name : {"OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) {
    ASSERT_EQ(std::getenv(name), nullptr);
    Warnings warnings;
    setenv(name, "FALSE", 1);
    checked({.num_workers = kMostWorkers});
    setenv(name, "close", 1);
    checked({.num_workers = kMostWorkers});
    unsetenv(name);
    EXPECT_THAT(warnings.texts,
                ElementsAre(testing::EndsWith(" training"),
                            AllOf(HasSubstr(std::string(" training. ") + name + " is set, which "),
                                  HasSubstr("make the loader before the first parallel region"))));
  }
}

}  // namespace
}  // namespace stoker::detail
