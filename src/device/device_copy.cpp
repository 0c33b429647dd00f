// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/Context.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <stoker/detail/device_copy.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>

#include "device/accelerator.h"
#include "device/copy_watch.h"
#include "device/device_faults.h"

namespace stoker::detail {

namespace {

void check(const DevicePrefetcherOptions& options) {
  if (options.depth < 1) {
    throw std::invalid_argument("stoker: depth is " + std::to_string(options.depth) +
                                "; it must be 1 or more");
  }
  if (options.dtype && !at::isFloatingType(*options.dtype)) {
    throw std::invalid_argument(std::string("stoker: dtype is ") + at::toString(*options.dtype) +
                                "; it must be a floating-point one, as only such tensors are "
                                "converted; for others give a transform");
  }
  if (options.memory_format && *options.memory_format != at::MemoryFormat::ChannelsLast &&
      *options.memory_format != at::MemoryFormat::ChannelsLast3d) {
    throw std::invalid_argument(
        "stoker: memory_format must be ChannelsLast or ChannelsLast3d; leave it out for any other");
  }
}

}  // namespace

class DeviceCopy::Impl {
 public:
  Impl(at::Device device, DevicePrefetcherOptions options, std::string_view name)
      : options_(std::move(options)), device_(usable_device(device, name)) {
    check(options_);
    if (device_.is_cpu()) return;
    at::globalContext().lazyInitDevice(device_.type());
    guard_.emplace(device_.type());
    side_ = guard_->getStreamFromGlobalPool(device_);
    install_host_guard(device_.type());
  }

  // In a forked child the device must not be asked, and the tensors not be touched.
  ~Impl() {
    if (getpid() != owner_) {
      static_cast<void>(new std::deque<Held>(std::move(held_)));
    } else if (!held_.empty()) {
      wait_for_copies();
    }
  }

  void start(const std::vector<at::Tensor*>& tensors) {
    check_numbers(tensors.size());
    if (device_.is_cpu()) {
      change(tensors, nullptr);
      return;
    }
    let_go();
    std::vector<at::Tensor> hosts;
    try {
      const c10::StreamGuard on_side(*side_);
      change(tensors, &hosts);
    } catch (...) {
      wait_for_copies();  // of the tensors before the one that failed
      throw;
    }
    SharedEvent event = take_event(device_);
    event->record(*side_);
    keep_until(event, std::move(hosts));
    started_.push_back(std::move(event));
  }

  // The consumer's stream is asked for each time: programs change it.
  void finish(const std::vector<at::Tensor*>& tensors) {
    if (device_.is_cpu()) return;
    const c10::Stream consumer = guard_->getStream(device_);
    if (!device_faults.no_wait) started_.front()->block(consumer);
    started_.pop_front();
    if (device_faults.no_record_stream) return;
    for (const at::Tensor* tensor : tensors) {
      if (!tensor->defined() || tensor->device() != device_) continue;
      guard_->recordDataPtrOnStream(tensor->storage().data_ptr(), consumer);
    }
  }

  void drop() { started_.clear(); }

  at::Device device() const { return device_; }
  size_t depth() const { return device_.is_cpu() ? 1 : static_cast<size_t>(options_.depth); }

 private:
  // The host's tensors, and the event behind the copies from them.
  struct Held {
    SharedEvent event;
    std::vector<at::Tensor> tensors;
  };

  // `hosts` takes what was copied from.
  void change(const std::vector<at::Tensor*>& tensors, std::vector<at::Tensor>* hosts) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      at::Tensor& tensor = *tensors[i];
      const auto& kept = options_.keep_on_host;
      if (!tensor.defined() || std::find(kept.begin(), kept.end(), i) != kept.end()) continue;
      check_copyable(tensor, i);
      if (hosts != nullptr && tensor.device() == device_) continue;
      // Not changed in the same step: then the host would make a changed copy first, and wait.
      at::Tensor there = tensor.to(device_, /*non_blocking=*/true, /*copy=*/false);
      if (hosts != nullptr) hosts->push_back(std::move(tensor));
      tensor = converted(std::move(there), i);
    }
  }

  at::Tensor converted(at::Tensor tensor, size_t number) const {
    if (options_.dtype && tensor.is_floating_point()) tensor = tensor.to(*options_.dtype);
    if (options_.memory_format) {
      const int64_t dim = *options_.memory_format == at::MemoryFormat::ChannelsLast ? 4 : 5;
      if (tensor.dim() == dim) tensor = tensor.contiguous(*options_.memory_format);
    }
    return options_.transform ? options_.transform(number, std::move(tensor)) : tensor;
  }

  static void check_copyable(const at::Tensor& tensor, size_t number) {
    if (tensor.has_storage()) return;
    throw std::invalid_argument("stoker: tensor " + std::to_string(number) +
                                " of the batch has no storage (a sparse one?) and cannot be copied "
                                "ahead; name it in keep_on_host");
  }

  void check_numbers(size_t count) const {
    for (const size_t number : options_.keep_on_host) {
      if (number < count) continue;
      throw std::invalid_argument("stoker: keep_on_host names tensor " + std::to_string(number) +
                                  " of a batch that has " + std::to_string(count));
    }
  }

  // Those in slots may go now: their pool keeps the memory until the event. Others are held.
  void keep_until(const SharedEvent& event, std::vector<at::Tensor> hosts) {
    if (!device_faults.early_reuse) {
      Held held{event, {}};
      for (at::Tensor& host : hosts) {
        if (!is_watched_host_memory(host.storage().data())) {
          held.tensors.push_back(std::move(host));
        }
      }
      if (!held.tensors.empty()) held_.push_back(std::move(held));
    }
    const RecordedCopies recorded(*side_, event);
    hosts.clear();
  }

  void let_go() {
    while (!held_.empty() && held_.front().event->query()) held_.pop_front();
  }

  // Of a device that failed nothing comes any more.
  void wait_for_copies() noexcept {
    try {
      guard_->synchronizeStream(*side_);
    } catch (const c10::Error&) {
    }
    held_.clear();
  }

  const pid_t owner_ = getpid();
  DevicePrefetcherOptions options_;
  at::Device device_;
  std::optional<c10::impl::VirtualGuardImpl> guard_;  // not for the CPU
  std::optional<c10::Stream> side_;
  std::deque<SharedEvent> started_;  // one per batch
  std::deque<Held> held_;
};

DeviceCopy::DeviceCopy(at::Device device, DevicePrefetcherOptions options, std::string_view name)
    : impl_(std::make_unique<Impl>(device, std::move(options), name)) {}
DeviceCopy::~DeviceCopy() = default;

void DeviceCopy::start(const std::vector<at::Tensor*>& tensors) { impl_->start(tensors); }
void DeviceCopy::finish(const std::vector<at::Tensor*>& tensors) { impl_->finish(tensors); }
void DeviceCopy::drop() { impl_->drop(); }
at::Device DeviceCopy::device() const { return impl_->device(); }
size_t DeviceCopy::depth() const { return impl_->depth(); }

}  // namespace stoker::detail
