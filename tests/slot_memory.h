// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Slots on the heap, and samples taken apart as a loader does it: the slot protocol without the
// processes.

#include <stoker/dataloader.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collate.h"
#include "control.h"
#include "failure.h"
#include "fill.h"
#include "row_layout.h"
#include "slot.h"

namespace stoker::detail {

// Page-aligned, zero-filled.
class HeapBlock {
 public:
  explicit HeapBlock(uint64_t bytes)
      : bytes_(static_cast<std::byte*>(std::aligned_alloc(Slot::kPage, bytes))) {
    std::memset(bytes_.get(), 0, bytes);
  }
  std::byte* data() const { return bytes_.get(); }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
};

// A control block and its slots.
class HeapSlots {
 public:
  HeapSlots(uint32_t workers, uint32_t slots, uint64_t slot_bytes = Slot::kMinBytes)
      : head_(Control::bytes_needed(workers, slots)),
        block_(head_ + slots * slot_bytes),
        control_(Control::create(block_.data(), workers, slots)) {
    for (uint32_t i = 0; i < slots; ++i) {
      control_->set_extent(i, {head_ + i * slot_bytes, slot_bytes});
    }
  }
  Control& control() { return *control_; }

 private:
  uint64_t head_;
  HeapBlock block_;
  Control* control_;
};

// One slot, and one batch after another in it.
class HeapSlot {
 public:
  explicit HeapSlot(uint64_t bytes = Slot::kMinBytes) : block_(bytes), slot_(block_.data(), bytes) {}

  Slot slot() const { return slot_; }
  Slot publish(const std::vector<int64_t>& indices, uint64_t epoch_seed = 0, uint64_t first = 0) {
    slot_.publish(indices, generation_++, epoch_seed, first);
    return slot_;
  }

 private:
  HeapBlock block_;
  Slot slot_;
  uint32_t generation_ = 0;
};

// A worker without its loop: does as many rows as it is told.
class HandWorker {
 public:
  explicit HandWorker(Fetcher& fetcher, std::optional<int64_t> id = 0) : filler_(fetcher, id, 4) {}

  // True if it completed the batch.
  bool work(Slot slot, RowRange rows) {
    take(slot, rows.count);
    return slot.finish(filler_.fill(slot, rows, row_));
  }
  Filler& filler() { return filler_; }
  uint32_t row() const { return row_; }

 private:
  static void take(Slot slot, uint32_t count) { slot.header().ticket.fetch_add(count); }

  Filler filler_;
  std::atomic<uint32_t> row_{0};
};

// All rows at once, and the end of the batch.
inline SlotStatus fill_and_collate(Slot slot, Fetcher& fetcher) {
  HandWorker worker(fetcher);
  worker.work(slot, {0, static_cast<uint32_t>(slot.num_samples())});
  return collate(slot, 0);
}

template <class Sample>
FlatSample flat(const Sample& sample) {
  FlatSample result;
  Codec<Sample>::flatten(sample, result);
  return result;
}
template <class Sample>
std::vector<std::string> paths_of(const Sample& sample) {
  LeafPaths paths;
  Codec<Sample>::flatten(sample, paths);
  return paths.take();
}
template <class Sample>
std::vector<std::byte> encoded(const Sample& sample) {
  return RowLayout::encode(flat(sample), paths_of(sample));
}

// The bytes of one leaf of a finished batch, as values.
template <class T>
std::vector<T> column(Slot slot, size_t leaf) {
  const SlotHeader& header = slot.header();
  const RowLayout layout(slot.at(header.result_layout));
  const std::byte* rows = slot.at(header.result_rows);
  const uint64_t n = slot.num_samples();
  for (size_t i = 0; i < leaf; ++i) rows += align64(layout.leaves()[i].row_bytes * n);
  std::vector<T> values(layout.leaves()[leaf].row_bytes * n / sizeof(T));
  std::memcpy(values.data(), rows, values.size() * sizeof(T));
  return values;
}
inline std::vector<std::string> strings(Slot slot, size_t leaf) {
  std::vector<std::string> texts;
  for (const StringRow& entry : column<StringRow>(slot, leaf)) {
    texts.emplace_back(reinterpret_cast<const char*>(slot.at(entry.offset)), entry.bytes);
  }
  return texts;
}

inline Failure failure_of(Slot slot) { return load_failure(slot, slot.header().failure); }

// Type and text of what the action throws; "nothing" if it does not.
template <class Error, class Action>
std::string text_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace stoker::detail
