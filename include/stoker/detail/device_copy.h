// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace stoker {

/// What a DevicePrefetcher does beside copying.
struct DevicePrefetcherOptions {
  /// Batches on their way to the device, or waiting there, at most; at least 1.
  int64_t depth = 2;

  /// Tensors that stay on the host, by their number in the batch, from 0, in the order of its
  /// fields.
  std::vector<size_t> keep_on_host = {};

  /// The dtype of floating-point tensors on the device; others keep theirs, as in
  /// `torch.nn.Module.to`. Converted on the device, so that the copy stays asynchronous.
  std::optional<at::ScalarType> dtype = std::nullopt;

  /// The memory format there of tensors of 4 dimensions (`ChannelsLast`) or 5 (`ChannelsLast3d`);
  /// others keep theirs, as in `torch.nn.Module.to`.
  std::optional<at::MemoryFormat> memory_format = std::nullopt;

  /// Any other change, made on the device after those: is given each tensor that was copied, with
  /// its number in the batch, and gives what is handed out instead. Runs ahead of the consumer, on
  /// the stream of the copies, which is the current one: pictures as bytes, for instance,
  /// become `[](size_t i, at::Tensor t) { return i == 0 ? t.to(at::kHalf).div_(255) : t; }`.
  std::function<at::Tensor(size_t number, at::Tensor tensor)> transform = nullptr;
};

namespace detail {

/// Copies batches to a device, on a stream of its own; the compiled part of DevicePrefetcher.
/// Knows a batch as its tensors. On the CPU it does no more than the changes. One thread at a time.
class DeviceCopy {
 public:
  /// Throws `std::invalid_argument` that calls the device by that name if it cannot be used, and
  /// for bad options.
  DeviceCopy(at::Device device, DevicePrefetcherOptions options, std::string_view name);
  /// Waits until nothing that is still needed for a copy is in use.
  ~DeviceCopy();

  /// Starts to copy a batch, and puts what will be its copy in place of each tensor. Throws what
  /// libtorch throws, out of memory for instance.
  void start(const std::vector<at::Tensor*>& tensors);
  /// The oldest batch started is handed out: whatever the calling thread's current stream does from
  /// now on sees it copied. Does not wait.
  void finish(const std::vector<at::Tensor*>& tensors);
  /// The batches that were started and not finished will not be wanted.
  void drop();

  /// With its index; of the CPU without.
  at::Device device() const;
  /// Batches that may be started before one is finished: `depth`, and 1 on the CPU.
  size_t depth() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace detail
}  // namespace stoker
