// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Slots on the heap, and samples taken apart as a loader does it: the slot protocol without the
// processes.

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <stoker/dataloader.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "datasets.h"
#include "loader/finished_batch.h"
#include "memory/control.h"
#include "memory/failure.h"
#include "memory/row_layout.h"
#include "memory/row_writer.h"
#include "memory/slot.h"
#include "worker/collate.h"
#include "worker/fill.h"

namespace stoker::detail {

// Threads within libtorch's operations are not built for a thread sanitizer.
inline const bool kOneThreadPerOperation = [] {
  at::set_num_threads(1);
  return true;
}();

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
  explicit HeapSlot(uint64_t bytes = Slot::kMinBytes) : memory_(8, 1, bytes) {}

  Slot slot() { return control().slot(0); }
  Slot publish(const std::vector<int64_t>& indices, uint64_t epoch_seed = 0, uint64_t first = 0) {
    slot().publish(indices, control().published(),
                   {.epoch_seed = epoch_seed, .first_position = first});
    control().publish(0);
    return slot();
  }
  RowRange claim(uint32_t count) {
    const auto some = [count](uint32_t, uint32_t) { return count; };
    return control().claim(control().worker(0), some).value().rows;
  }

 private:
  Control& control() { return memory_.control(); }

  HeapSlots memory_;
};

// A worker without its loop: does the rows that it is told, claimed or not.
class HandWorker {
 public:
  explicit HandWorker(Fetcher& fetcher, std::optional<int64_t> id = 0) : filler_(fetcher, id, 4) {}

  // True if it completed the batch.
  bool work(Slot slot, RowRange rows) {
    const uint32_t generation = slot.generation();
    const uint32_t finished = filler_.fill(slot, generation, rows, progress_);
    return slot.finish(filler_.hand(slot, generation), finished);
  }
  Filler& filler() { return filler_; }
  uint32_t row() const { return progress_.row; }

 private:
  Filler filler_;
  Progress progress_;
};

// Does these rows by hand, as worker `id`: true if it must complete the batch.
inline bool settle_rows(Slot slot, RowRange rows, uint32_t id = 0,
                        RowState state = RowState::kInRows) {
  const Hand me = Slot::worker(slot.generation(), id);
  for (uint32_t row = rows.first; row < rows.first + rows.count; ++row) {
    if (!slot.own(row, me)) return false;
    slot.settle(row, me, state);
  }
  return slot.finish(me, rows.count);
}
// Main's part when a batch is cancelled.
inline void cancel_rest(Slot slot) {
  slot.header().cancelled.store(1, std::memory_order_relaxed);
  const Hand main = slot.main(slot.generation());
  const uint32_t rest = slot.skip_rest(main);
  if (rest > 0 && slot.finish(main, rest)) slot.header().status.store(SlotStatus::kReady);
}

// Whether a writer that has seen no other sample finds that this one's row is one of the layout's.
inline bool matches(const RowLayout& layout, const FlatSample& sample) {
  HeapSlot memory;
  return RowWriter(layout, memory.slot(), memory.slot().at(0), 1).matches(sample);
}

// All rows at once, and the end of the batch.
inline SlotStatus fill_and_collate(Slot slot, Fetcher& fetcher) {
  HandWorker(fetcher).work(slot, {0, static_cast<uint32_t>(slot.num_samples())});
  return collate(slot, fetcher, 0);
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
  if (!values.empty()) std::memcpy(values.data(), rows, values.size() * sizeof(T));
  return values;
}
inline std::vector<std::string> strings(Slot slot, size_t leaf) {
  std::vector<std::string> texts;
  for (const StringRow& entry : column<StringRow>(slot, leaf)) {
    texts.emplace_back(reinterpret_cast<const char*>(slot.at(entry.offset)), entry.bytes);
  }
  return texts;
}

// Main's part after that: the batch with tensors over the slot, which they do not hold.
inline BatchLeaves read_batch(Slot slot, uint64_t num_samples) {
  FinishedBatch finished(slot, num_samples);
  const RowLayout layout = finished.layout();
  BatchLeaves batch;
  batch.structure = layout.structure();
  std::byte* rows = finished.rows();
  for (const RowLayout::Leaf& leaf : layout.leaves()) {
    auto& out = batch.leaves.emplace_back();
    if (leaf.kind == FlatSample::Kind::kString) {
      out.strings = finished.strings(rows, num_samples);
    } else {
      std::vector<int64_t> sizes{static_cast<int64_t>(num_samples)};
      sizes.insert(sizes.end(), layout.sizes(leaf).begin(), layout.sizes(leaf).end());
      out.tensor = at::from_blob(rows, sizes, at::TensorOptions(leaf.dtype));
    }
    rows += align64(leaf.row_bytes * num_samples);
  }
  return batch;
}

inline Failure failure_of(Slot slot) { return load_failure(slot, slot.header().failure); }

}  // namespace stoker::detail
