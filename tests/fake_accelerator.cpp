// SPDX-License-Identifier: BSD-3-Clause
#include "fake_accelerator.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

// The sanitizer is not to look for leaks: the streams' threads never end, and what they and
// libtorch's registries point to is never freed.
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return 1; }

namespace stoker::fake {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr int kStreams = 16;  // per device; 0 is the default one

// Everything here lives as long as the process: the streams' threads outlive static objects.

std::atomic<bool> installed{false};
std::atomic<int64_t> delay_us{0};
std::atomic<bool> has_pinned_memory{true};

// --- streams and events

class Queue {
 public:
  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (!started_) std::thread([this] { run(); }).detach();
    started_ = true;
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  void set_held(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  void wait_until_empty() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.empty(); });
  }
  bool is_empty() {
    const std::lock_guard lock(mutex_);
    return tasks_.empty();
  }

 private:
  [[noreturn]] void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !held_ && !tasks_.empty(); });
      const auto task = tasks_.front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(delay_us.load()));
      task();
      lock.lock();
      tasks_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_; the front one may be running
  bool held_ = false;
  bool started_ = false;
};

Queue& queue_of(c10::Stream stream) {
  static auto* queues = new std::array<std::array<Queue, kStreams>, kDevices>;
  return queues->at(static_cast<size_t>(stream.device_index()))
      .at(static_cast<size_t>(stream.id()));
}

c10::Stream stream_of(int device_index, int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, {kType, static_cast<c10::DeviceIndex>(device_index)}, id);
}

// Recorded again, it has a new version.
class Event {
 public:
  void record(c10::Stream stream, const std::shared_ptr<Event>& self) {
    const std::lock_guard lock(mutex_);
    queue_of(stream).push([self, version = ++recorded_] { self->pass(version); });
  }
  uint64_t recorded() {
    const std::lock_guard lock(mutex_);
    return recorded_;
  }
  bool has_passed() {
    const std::lock_guard lock(mutex_);
    return passed_ >= recorded_;
  }
  void wait(uint64_t version) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return passed_ >= version; });
  }
  Clock::time_point when() {
    const std::lock_guard lock(mutex_);
    return when_;
  }

 private:
  void pass(uint64_t version) {
    const std::lock_guard lock(mutex_);
    passed_ = version;
    when_ = Clock::now();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t recorded_ = 0;
  uint64_t passed_ = 0;
  Clock::time_point when_;
};

using EventHandle = std::shared_ptr<Event>;
EventHandle& handle(void* event) { return *static_cast<EventHandle*>(event); }

thread_local int current_device = 0;
thread_local std::array<int64_t, kDevices> current_streams{};
std::array<std::atomic<int64_t>, kDevices> pool_next{};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device next) const override {
    const c10::Device before = getDevice();
    setDevice(next);
    return before;
  }
  c10::Device getDevice() const override { return fake::device(current_device); }
  void setDevice(c10::Device next) const override {
    TORCH_CHECK(next.index() >= 0 && next.index() < kDevices, "no such fake device: ", next);
    current_device = next.index();
  }
  void uncheckedSetDevice(c10::Device next) const noexcept override {
    current_device = next.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return installed ? kDevices : 0; }

  c10::Stream getStream(c10::Device of) const override {
    ++counters().stream_uses;
    return stream_of(of.index(), current_streams.at(static_cast<size_t>(of.index())));
  }
  c10::Stream getDefaultStream(c10::Device of) const override { return stream_of(of.index(), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool) const override {
    ++counters().stream_uses;
    const int64_t next = pool_next.at(static_cast<size_t>(of.index()))++;
    return stream_of(of.index(), 1 + next % (kStreams - 1));
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    ++counters().stream_uses;
    auto& current = current_streams.at(static_cast<size_t>(next.device_index()));
    return stream_of(next.device_index(), std::exchange(current, next.id()));
  }
  bool queryStream(const c10::Stream& stream) const override { return queue_of(stream).is_empty(); }
  void synchronizeStream(const c10::Stream& stream) const override {
    ++counters().syncs;
    queue_of(stream).wait_until_empty();
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    ++counters().events_recorded;
    if (*event == nullptr) {
      ++counters().events_made;
      *event = new EventHandle(std::make_shared<Event>());
    }
    handle(*event)->record(stream, handle(*event));
  }
  // For what is recorded now: the event may be recorded anew before the stream gets there.
  void block(void* event, const c10::Stream& stream) const override {
    ++counters().waits;
    queue_of(stream).push(
        [waited = handle(event), version = handle(event)->recorded()] { waited->wait(version); });
  }
  bool queryEvent(void* event) const override { return handle(event)->has_passed(); }
  void synchronizeEvent(void* event) const override {
    ++counters().syncs;
    handle(event)->wait(handle(event)->recorded());
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<EventHandle*>(event);
  }
  double elapsedTime(void* from, void* to, c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(handle(to)->when() - handle(from)->when())
        .count();
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override;
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// --- memory of the devices

struct Block {
  std::byte* memory;
  size_t bytes;
  c10::Stream stream;  // it was allocated on
  std::set<int64_t> others;
};

// As torch's caching allocators do it: what was freed serves the same stream again at once, unless
// other streams have used it; then once those are through.
class DeviceAllocator final : public c10::Allocator {
 public:
  static DeviceAllocator& instance() {
    static auto* allocator = new DeviceAllocator;
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    const c10::Stream stream = current_stream(current_device);
    const std::lock_guard lock(mutex_);
    Block* block = reuse(bytes, stream);
    if (block == nullptr) block = make(bytes, stream);
    used_[block->memory] = block;
    return {block->memory, block, &DeviceAllocator::free, stream.device()};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  void record(const void* memory, c10::Stream stream) {
    const std::lock_guard lock(mutex_);
    const auto found = used_.find(memory);
    if (found == used_.end() || found->second->stream == stream) return;
    found->second->others.insert(stream.id());
  }

 private:
  struct Pending {
    Block* block;
    std::vector<EventHandle> events;
  };

  static void free(void* context) { instance().take_back(static_cast<Block*>(context)); }

  void take_back(Block* block) {
    const std::lock_guard lock(mutex_);
    used_.erase(block->memory);
    Pending pending{block, {}};
    for (const int64_t id : std::exchange(block->others, {})) {
      pending.events.push_back(std::make_shared<Event>());
      pending.events.back()->record(stream_of(block->stream.device_index(), id),
                                    pending.events.back());
    }
    pending_.push_back(std::move(pending));
  }
  Block* reuse(size_t bytes, c10::Stream stream) {
    std::erase_if(pending_, [this](const Pending& pending) {
      for (const EventHandle& event : pending.events) {
        if (!event->has_passed()) return false;
      }
      free_.push_back(pending.block);
      return true;
    });
    for (auto block = free_.rbegin(); block != free_.rend(); ++block) {
      if ((*block)->bytes != bytes || (*block)->stream != stream) continue;
      Block* found = *block;
      free_.erase(std::next(block).base());
      return found;
    }
    return nullptr;
  }
  static Block* make(size_t bytes, c10::Stream stream) {
    auto* memory = static_cast<std::byte*>(std::malloc(bytes + 1));
    std::memset(memory, 0xCD, bytes);
    return new Block{memory, bytes, stream, {}};
  }

  std::mutex mutex_;
  std::map<const void*, Block*> used_;
  std::vector<Block*> free_;
  std::vector<Pending> pending_;
};

void Guard::recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const {
  DeviceAllocator::instance().record(memory.get(), stream);
}

// --- pinned memory of the host

class Ranges {
 public:
  bool add(const void* begin, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* from = static_cast<const std::byte*>(begin);
    for (const auto& [other, size] : ranges_) {
      if (from < other + size && other < from + bytes) return false;
    }
    ranges_[from] = bytes;
    return true;
  }
  bool remove(const void* begin) {
    const std::lock_guard lock(mutex_);
    return ranges_.erase(static_cast<const std::byte*>(begin)) == 1;
  }
  bool has(const void* begin, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* from = static_cast<const std::byte*>(begin);
    auto range = ranges_.upper_bound(from);
    if (range == ranges_.begin()) return false;
    --range;
    return from + bytes <= range->first + range->second;
  }
  // Whether they lie in some range, and reach out of it.
  bool straddle(const void* begin, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* from = static_cast<const std::byte*>(begin);
    for (const auto& [other, size] : ranges_) {
      if (from >= other + size || other >= from + bytes) continue;
      if (from < other || from + bytes > other + size) return true;
    }
    return false;
  }
  uint64_t bytes() {
    const std::lock_guard lock(mutex_);
    uint64_t sum = 0;
    for (const auto& [begin, size] : ranges_) sum += size;
    return sum;
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, uint64_t> ranges_;
};
Ranges& registered_ranges() {
  static auto* ranges = new Ranges;
  return *ranges;
}
Ranges& own_pinned() {
  static auto* ranges = new Ranges;
  return *ranges;
}
bool is_pinned(const void* memory, uint64_t bytes = 1) {
  return registered_ranges().has(memory, bytes) || own_pinned().has(memory, bytes);
}

// Keeps what it frees until the streams that copy from it are through.
class PinnedAllocator final : public at::HostAllocator {
 public:
  static PinnedAllocator& instance() {
    static auto* allocator = new PinnedAllocator;
    return *allocator;
  }
  at::DataPtr allocate(size_t bytes) override {
    void* memory = std::malloc(bytes + 1);
    own_pinned().add(memory, bytes + 1);
    return {memory, memory, &PinnedAllocator::free, c10::kCPU};
  }
  bool record_event(void* memory, void* context, c10::Stream stream) override {
    if (!own_pinned().has(memory, 1)) return false;
    const std::lock_guard lock(mutex_);
    streams_[context].insert({stream.device_index(), stream.id()});
    return true;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  static void free(void* memory) {
    const std::lock_guard lock(instance().mutex_);
    const std::shared_ptr<void> last(memory, [](void* done) {
      own_pinned().remove(done);
      std::free(done);
    });
    for (const auto& [index, id] : instance().streams_[memory]) {
      queue_of(stream_of(index, id)).push([last] {});
    }
    instance().streams_.erase(memory);
  }

  std::mutex mutex_;
  std::map<void*, std::set<std::pair<int, int64_t>>> streams_;
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device);
  }
  void setCurrentDevice(c10::DeviceIndex index) const override { current_device = index; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return static_cast<c10::DeviceIndex>(std::exchange(current_device, index));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  bool isPinnedPtr(const void* memory) const override { return is_pinned(memory); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    TORCH_CHECK(has_pinned_memory, "fake accelerator: no pinned memory");
    return at::getHostAllocator(kType);
  }
};

// --- operators

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> on, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(on && on->has_index() ? *on : fake::device(current_device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &DeviceAllocator::instance(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> on, std::optional<bool>) {
  const c10::DeviceGuard guard(on && on->has_index() ? *on : fake::device(current_device));
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), &DeviceAllocator::instance(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype.value_or(at::kFloat));
}

// A tensor's memory seen from the stream's thread, which keeps nothing alive.
struct Raw {
  explicit Raw(const at::Tensor& of)
      : memory(of.data_ptr()),
        sizes(of.sizes().vec()),
        strides(of.strides().vec()),
        dtype(of.scalar_type()) {}
  at::Tensor tensor() const { return at::from_blob(memory, sizes, strides, dtype); }

  void* memory;
  std::vector<int64_t> sizes, strides;
  at::ScalarType dtype;
};

void run_copy(const Raw& from, const Raw& to) { to.tensor().copy_(from.tensor()); }

// Out of pinned memory it is read when the stream gets there, out of other memory at the call.
void copy_to_device(const at::Tensor& from, const at::Tensor& to, bool non_blocking,
                    c10::Stream stream) {
  ++counters().copies_to_device;
  const bool as_it_is = from.scalar_type() == to.scalar_type() && from.is_contiguous();
  TORCH_CHECK(!registered_ranges().straddle(from.data_ptr(), from.nbytes()),
              "fake accelerator: a copy straddles registered and other memory");
  if (as_it_is && non_blocking && is_pinned(from.data_ptr(), from.nbytes())) {
    ++counters().async_copies;
    queue_of(stream).push([from = Raw(from), to = Raw(to)] { run_copy(from, to); });
  } else {
    ++counters().staged_copies;
    queue_of(stream).push([staged = from.to(to.scalar_type(), false, true), to = Raw(to)] {
      to.tensor().copy_(staged);
    });
  }
  if (non_blocking) {
    const c10::DataPtr& memory = from.storage().data_ptr();
    at::getHostAllocator(kType)->record_event(from.data_ptr(), memory.get_context(), stream);
  } else {
    ++counters().syncs;
    queue_of(stream).wait_until_empty();
  }
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (from.numel() == 0) return to;
  const c10::Device on = to.device().is_cpu() ? from.device() : to.device();
  const c10::DeviceGuard guard(on);
  const c10::Stream stream = current_stream(on.index());
  if (from.device().is_cpu()) {
    copy_to_device(from, to, non_blocking, stream);
  } else if (to.device().is_cpu()) {
    queue_of(stream).push([from = Raw(from), to = Raw(to)] { run_copy(from, to); });
    if (!non_blocking || !is_pinned(to.data_ptr(), to.nbytes())) {
      ++counters().syncs;
      queue_of(stream).wait_until_empty();
    }
  } else {
    ++counters().copies_on_device;
    if (from.device() != to.device())
      queue_of(current_stream(from.device().index())).wait_until_empty();
    queue_of(stream).push([from = Raw(from), to = Raw(to)] { run_copy(from, to); });
  }
  return to;
}

// Without it the fallback to the CPU calls itself until the stack is full.
const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size,
                         std::optional<at::MemoryFormat>) {
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  auto* impl = self.unsafeGetTensorImpl();
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * self.itemsize();
  if (bytes > self.storage().nbytes()) {
    const c10::DeviceGuard guard(self.device());
    self.storage().set_data_ptr_noswap(DeviceAllocator::instance().allocate(bytes));
    self.storage().set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) resize(to, from.sym_sizes(), std::nullopt);
  return copy_from(from, to, false);
}

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("resize_", resize);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back>());
}

// --- page-locking

constexpr int kRefused = 2;
std::atomic<bool> refuse{false};
std::atomic<int> last_error{0};

int host_register(void* memory, size_t bytes, unsigned) {
  if (refuse || bytes == 0 || !registered_ranges().add(memory, bytes)) {
    last_error = kRefused;
    return kRefused;
  }
  ++counters().registered;
  return 0;
}
int host_unregister(void* memory) {
  ++counters().unregistered;
  if (registered_ranges().remove(memory)) return 0;
  last_error = kRefused;
  return kRefused;
}
int get_last_error() { return last_error.exchange(0); }
const char* get_error_string(int) { return "the fake refused"; }

}  // namespace

void install() {
  if (installed.exchange(true)) return;
  at::set_num_threads(1);  // a team of threads for each stream would be too many
  c10::SetAllocator(kType, &DeviceAllocator::instance());
  at::setHostAllocator(kType, &PinnedAllocator::instance());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::register_privateuse1_backend("fake");
}

c10::Device device(int index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }

Counters& counters() {
  static auto* counters = new Counters;
  return *counters;
}

void hold(c10::Stream stream) { queue_of(stream).set_held(true); }
void let_go(c10::Stream stream) { queue_of(stream).set_held(false); }
void set_delay(std::chrono::microseconds delay) { delay_us = delay.count(); }
void launch(c10::Stream stream, std::function<void()> kernel) {
  queue_of(stream).push(std::move(kernel));
}
c10::Stream current_stream(int index) {
  return stream_of(index, current_streams.at(static_cast<size_t>(index)));
}
c10::Stream new_stream(int index) { return Guard().getStreamFromGlobalPool(device(index), false); }
c10::Stream last_new_stream(int index) {
  const int64_t next = pool_next.at(static_cast<size_t>(index));
  return stream_of(index, 1 + (next - 1) % (kStreams - 1));
}
bool is_idle(c10::Stream stream) { return queue_of(stream).is_empty(); }
void finish(c10::Stream stream) { queue_of(stream).wait_until_empty(); }
void finish_all() {
  for (int index = 0; index < kDevices; ++index) {
    for (int id = 0; id < kStreams; ++id) queue_of(stream_of(index, id)).wait_until_empty();
  }
}

detail::HostPinApi host_pin_api() {
  return {host_register, host_unregister, get_last_error, get_error_string};
}
void refuse_pinned_memory(bool refused) { has_pinned_memory = !refused; }
void fail_registering(bool fail) { refuse = fail; }
uint64_t registered_bytes() { return registered_ranges().bytes(); }
bool error_is_pending() { return last_error != 0; }
bool is_registered(const void* memory, uint64_t bytes) {
  return registered_ranges().has(memory, bytes);
}

}  // namespace stoker::fake
