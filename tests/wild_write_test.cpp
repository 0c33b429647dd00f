// SPDX-License-Identifier: BSD-3-Clause

// Promise: what is damaged is refused, and not read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "datasets.h"
#include "memory/control.h"
#include "memory/row_layout.h"
#include "processes.h"

namespace stoker {
namespace {

using testing::HasSubstr;

detail::Control& control_of_this_process() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:stoker") == std::string::npos) continue;
    return *reinterpret_cast<detail::Control*>(std::stoull(line, nullptr, 16));
  }
  throw std::runtime_error("no loader's memory is mapped");
}

using Damage = std::function<void(detail::Slot)>;
struct NamedDamage {
  const char* name;
  Damage run;
};
void PrintTo(const NamedDamage& damage, std::ostream* out) { *out << damage.name; }

// Writes over the batches that are ready, as a wild pointer of the program's, or of the dataset's
// in a worker, might.
class WildWriteTest : public testing::TestWithParam<NamedDamage> {};

TEST_P(WildWriteTest, ADamagedBatchEndsTheEpochAndNoLaterOne) {
  const auto sample = [](size_t i) { return std::vector{static_cast<int64_t>(i)}; };
  DataLoader loader(Made{40, sample}, {.batch_size = 4, .num_workers = 2, .prefetch_factor = 2});
  auto it = loader.begin();
  detail::Control& control = control_of_this_process();
  // Not while workers look for rows: what they claim is believed.
  ASSERT_TRUE(eventually([&] {
    for (uint32_t id = 0; id < 4; ++id) {
      if (control.slot(id).header().status == detail::SlotStatus::kOpen) return false;
    }
    return control.worker(0).claim == detail::WorkerRecord::kIdle &&
           control.worker(1).claim == detail::WorkerRecord::kIdle;
  }));
  for (uint32_t id = 0; id < 4; ++id) GetParam().run(control.slot(id));
  for (int again = 0; again < 2; ++again) {  // an error stays one
    EXPECT_THAT(text_of<std::runtime_error>([&] { ++it; }),
                HasSubstr("of a batch in shared memory is damaged"));
  }
  EXPECT_TRUE(it == loader.end());
  for (int epoch = 0; epoch < 2; ++epoch) {
    Numbers all;
    for (const auto& batch : loader) {
      for (const int64_t value : numbers(batch.at(0))) all.push_back(value);
    }
    EXPECT_EQ(all, up_to(40));
  }
}

std::byte* result_layout(detail::Slot slot) { return slot.at(slot.header().result_layout); }

INSTANTIATE_TEST_SUITE_P(
    Places, WildWriteTest,
    testing::Values(
        NamedDamage{"Rows", [](detail::Slot slot) { slot.header().result_rows = 1 << 30; }},
        NamedDamage{"Layout",
                    [](detail::Slot slot) { slot.header().result_layout = ~uint64_t{63}; }},
        NamedDamage{"Samples", [](detail::Slot slot) { slot.header().num_samples = 3; }},
        NamedDamage{"ManySamples", [](detail::Slot slot) { slot.header().num_samples = ~0U; }},
        NamedDamage{
            "Status",
            [](detail::Slot slot) { slot.header().status = static_cast<detail::SlotStatus>(77); }},
        NamedDamage{
            "LayoutsBytes",
            [](detail::Slot slot) { std::fill_n(result_layout(slot), 256, std::byte{0xff}); }},
        NamedDamage{"Structure",
                    [](detail::Slot slot) {
                      // How long the vectors are: the number 1 in 8 bytes, behind the leaf.
                      const auto length =
                          detail::RowLayout(result_layout(slot)).structure().data() -
                          reinterpret_cast<const char*>(result_layout(slot));
                      result_layout(slot)[length + 2] = std::byte{7};
                    }}),
    [](const auto& place) { return place.param.name; });

}  // namespace
}  // namespace stoker
