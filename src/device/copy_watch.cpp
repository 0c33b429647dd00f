// SPDX-License-Identifier: BSD-3-Clause
#include "device/copy_watch.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "device/device_faults.h"

namespace stoker::detail {

namespace {

thread_local const RecordedCopies* recorded_copies = nullptr;

SharedEvent event_behind(c10::Stream stream) {
  if (auto event = RecordedCopies::event_on(stream)) return event;
  auto event = take_event(stream.device());
  event->record(stream);
  return event;
}

// An event of a device that failed will never come, and neither will the copy.
bool has_passed(const SharedEvent& event) {
  try {
    return event->query();
  } catch (const c10::Error&) {
    return true;
  }
}
void wait_for(const SharedEvent& event) {
  try {
    event->synchronize();
  } catch (const c10::Error&) {
  }
}

}  // namespace

CopyWatch::CopyWatch(const std::byte* begin, uint64_t bytes) : begin_(begin), owner_(getpid()) {
  watch_host_memory(begin, bytes, *this);
}

CopyWatch::~CopyWatch() {
  if (getpid() != owner_) return;
  unwatch_host_memory(begin_);
  while (wait_for_oldest()) {
  }
}

void CopyWatch::copied(const void* memory, c10::Stream stream) {
  if (device_faults.unguarded) return;
  const std::lock_guard lock(mutex_);
  auto& streams = streams_[memory];
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) {
    streams.push_back(stream);
  }
}

bool CopyWatch::release(uint32_t slot, const std::byte* begin, uint64_t bytes) {
  if (getpid() != owner_) return true;
  const std::vector<c10::Stream> streams = take_streams(begin, bytes);
  if (streams.empty() || device_faults.early_reuse) return true;
  Busy busy{slot, {}};
  // Runs where a tensor is dropped, so nothing may be thrown. Where a stream cannot be asked, its
  // device has failed, and nothing is copied any more.
  for (const c10::Stream stream : streams) {
    try {
      busy.events.push_back(event_behind(stream));
    } catch (const c10::Error&) {
    }
  }
  const std::lock_guard lock(mutex_);
  busy_.push_back(std::move(busy));
  return false;
}

std::vector<c10::Stream> CopyWatch::take_streams(const std::byte* begin, uint64_t bytes) {
  std::vector<c10::Stream> all;
  const std::lock_guard lock(mutex_);
  const auto first = streams_.lower_bound(begin);
  auto last = first;
  for (; last != streams_.end() && last->first < begin + bytes; ++last) {
    for (const c10::Stream stream : last->second) {
      if (std::find(all.begin(), all.end(), stream) == all.end()) all.push_back(stream);
    }
  }
  streams_.erase(first, last);
  return all;
}

std::vector<uint32_t> CopyWatch::take_done() {
  std::vector<uint32_t> done;
  if (getpid() != owner_) return done;
  const std::lock_guard lock(mutex_);
  std::erase_if(busy_, [&done](const Busy& busy) {
    if (!std::all_of(busy.events.begin(), busy.events.end(), has_passed)) return false;
    done.push_back(busy.slot);
    return true;
  });
  return done;
}

std::optional<uint32_t> CopyWatch::wait_for_oldest() {
  std::unique_lock lock(mutex_);
  if (busy_.empty() || getpid() != owner_) return std::nullopt;
  const Busy oldest = std::move(busy_.front());
  busy_.pop_front();
  lock.unlock();
  for (const SharedEvent& event : oldest.events) wait_for(event);
  return oldest.slot;
}

RecordedCopies::RecordedCopies(c10::Stream stream, SharedEvent event)
    : stream_(stream), event_(std::move(event)) {
  recorded_copies = this;
}
RecordedCopies::~RecordedCopies() { recorded_copies = nullptr; }

SharedEvent RecordedCopies::event_on(c10::Stream stream) {
  if (recorded_copies == nullptr || recorded_copies->stream_ != stream) return nullptr;
  return recorded_copies->event_;
}

}  // namespace stoker::detail
