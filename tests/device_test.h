// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What tests with the fake accelerator share.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets.h"
#include "device/device_faults.h"
#include "device/host_pin.h"
#include "fake_accelerator.h"

namespace stoker {

// Leaves the fake as it found it: nothing held, nothing queued, no fault.
class DeviceTest : public testing::Test {
 protected:
  DeviceTest() {
    fake::install();
    detail::replace_host_pin_api(fake::host_pin_api());
  }
  ~DeviceTest() override {
    detail::device_faults = {};
    fake::set_delay(std::chrono::microseconds(0));
    fake::fail_registering(false);
    fake::refuse_pinned_memory(false);
    fake::finish_all();
  }
};

// A tensor's first number, as a kernel on that stream sees it: read when it gets there.
class LateLook {
 public:
  LateLook(const at::Tensor& tensor, c10::Stream stream) {
    const auto* memory = static_cast<const int64_t*>(tensor.data_ptr());
    fake::launch(stream, [seen = seen_, memory] { *seen = *memory; });
  }
  int64_t value() const { return *seen_; }

 private:
  std::shared_ptr<int64_t> seen_ = std::make_shared<int64_t>(-1);
};

// Sample i is a tensor of so many numbers, all i.
inline auto rows_of(int64_t numbers_per_sample, size_t count) {
  return Made{count, [=](size_t i) {
                return at::full({numbers_per_sample}, static_cast<int64_t>(i), at::kLong);
              }};
}

// Whether that says of the numbers of a batch of rows_of that they are those of sample `first` on.
inline bool is_batch(const at::Tensor& batch, int64_t first) {
  const at::Tensor want = at::arange(first, first + batch.size(0)).unsqueeze(1).expand_as(batch);
  return at::equal(batch.cpu(), want);
}

// What a body warned of.
class Warnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;
};

}  // namespace stoker
