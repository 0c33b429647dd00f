// SPDX-License-Identifier: BSD-3-Clause
#include "device/host_guard.h"

#include <torch/version.h>

#include <map>
#include <mutex>
#include <shared_mutex>

#define STOKER_HAS_HOST_ALLOCATORS \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8))
#if STOKER_HAS_HOST_ALLOCATORS
#include <ATen/core/CachingHostAllocator.h>
#endif

namespace stoker::detail {

namespace {

// Lives as long as the process: libtorch may copy while static objects are destroyed.
class Watched {
 public:
  static Watched& instance() {
    static auto* watched = new Watched;
    return *watched;
  }

  void add(const std::byte* begin, uint64_t bytes, HostWatcher& watcher) {
    const std::lock_guard lock(mutex_);
    ranges_[begin] = {begin + bytes, &watcher};
  }
  void remove(const std::byte* begin) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(begin);
  }
  // False if it is nobody's. The watcher is told under the lock, so that it is there.
  bool tell(const void* memory, c10::Stream stream) const {
    const std::shared_lock lock(mutex_);
    HostWatcher* watcher = find(memory);
    if (watcher != nullptr) watcher->copied(memory, stream);
    return watcher != nullptr;
  }
  bool has(const void* memory) const {
    const std::shared_lock lock(mutex_);
    return find(memory) != nullptr;
  }

 private:
  struct Range {
    const std::byte* end;
    HostWatcher* watcher;
  };

  HostWatcher* find(const void* memory) const {
    const auto* at = static_cast<const std::byte*>(memory);
    auto range = ranges_.upper_bound(at);
    if (range == ranges_.begin()) return nullptr;
    --range;
    return at < range->second.end ? range->second.watcher : nullptr;
  }

  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, Range> ranges_;  // guarded by mutex_
};

#if STOKER_HAS_HOST_ALLOCATORS
class FrontAllocator final : public at::HostAllocator {
 public:
  explicit FrontAllocator(at::HostAllocator& behind) : behind_(behind) {}

  bool record_event(void* memory, void* context, c10::Stream stream) override {
    return Watched::instance().tell(memory, stream) ||
           behind_.record_event(memory, context, stream);
  }

  // The rest is passed on.
  at::DataPtr allocate(size_t bytes) override { return behind_.allocate(bytes); }
  at::DeleterFnPtr raw_deleter() const override { return behind_.raw_deleter(); }
  bool is_simple_data_ptr(const at::DataPtr& memory) const override {
    return behind_.is_simple_data_ptr(memory);
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    behind_.copy_data(to, from, bytes);
  }
  void empty_cache() override { behind_.empty_cache(); }
  at::HostStats get_stats() override { return behind_.get_stats(); }
  void reset_accumulated_stats() override { behind_.reset_accumulated_stats(); }
  void reset_peak_stats() override { behind_.reset_peak_stats(); }
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 10
  void begin_allocate_to_pool(c10::MempoolId_t pool,
                              std::function<bool(c10::Stream)> filter) override {
    behind_.begin_allocate_to_pool(pool, std::move(filter));
  }
  void end_allocate_to_pool(c10::MempoolId_t pool) override { behind_.end_allocate_to_pool(pool); }
  void release_pool(c10::MempoolId_t pool) override { behind_.release_pool(pool); }
#endif
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
  void record_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn recorder,
                      size_t most, c10::CachingDeviceAllocator::RecordContext when,
                      bool clear) override {
    behind_.record_history(enabled, recorder, most, when, clear);
  }
  bool is_history_enabled() const override { return behind_.is_history_enabled(); }
  std::vector<at::HostSegmentInfo> get_segments() override { return behind_.get_segments(); }
  std::vector<c10::CachingDeviceAllocator::TraceEntry> get_traces() override {
    return behind_.get_traces();
  }
  void record_external_register(void* memory, size_t bytes) override {
    behind_.record_external_register(memory, bytes);
  }
  void record_external_unregister(void* memory) override {
    behind_.record_external_unregister(memory);
  }
#endif

 private:
  at::HostAllocator& behind_;
};
#endif

}  // namespace

bool install_host_guard([[maybe_unused]] c10::DeviceType type) {
#if STOKER_HAS_HOST_ALLOCATORS
  static std::mutex mutex;
  static auto* fronts = new std::map<c10::DeviceType, at::HostAllocator*>;
  const std::lock_guard lock(mutex);
  at::HostAllocator* present = at::getHostAllocator(type);
  at::HostAllocator*& front = (*fronts)[type];
  if (present == nullptr) return false;
  if (present == front) return true;
  front = new FrontAllocator(*present);
  at::setHostAllocator(type, front, /*priority=*/1);
  return at::getHostAllocator(type) == front;
#else
  return false;
#endif
}

void watch_host_memory(const std::byte* begin, uint64_t bytes, HostWatcher& watcher) {
  Watched::instance().add(begin, bytes, watcher);
}
void unwatch_host_memory(const std::byte* begin) { Watched::instance().remove(begin); }
bool is_watched_host_memory(const void* memory) { return Watched::instance().has(memory); }

}  // namespace stoker::detail
