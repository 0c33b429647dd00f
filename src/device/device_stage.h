// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The last step of a loader with a `device`: its batches are copied there ahead.
//
// Process safety: main only.

#include <stoker/detail/copied_ahead.h>
#include <stoker/detail/flat_sample.h>

#include <functional>

namespace stoker::detail {

class DeviceStage {
 public:
  // After the workers are forked. Throws std::invalid_argument if the device cannot be used.
  explicit DeviceStage(at::Device device);

  // Puts the next batch into one that is clear; false at the end. `pull` does the same on the host.
  bool next(const std::function<bool(BatchLeaves&)>& pull, BatchLeaves& batch);
  // Another epoch begins.
  void drop() { batches_.drop(); }
  // Whether nothing is left to hand out but what is pulled.
  bool empty() const { return batches_.empty(); }

 private:
  struct Tensors {
    std::vector<at::Tensor*> operator()(BatchLeaves& batch) const;
  };
  CopiedAhead<BatchLeaves, Tensors> batches_;
};

}  // namespace stoker::detail
