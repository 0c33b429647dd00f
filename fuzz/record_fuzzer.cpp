// SPDX-License-Identifier: BSD-3-Clause

// A batch in a slot, damaged before and after collation as the fuzzer says. What main then reads is
// a batch that lies in the slot, or an error of ours; and the next batch in that slot is whole.

#include <ATen/ops/full.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "slot_memory.h"

namespace stoker::detail {
namespace {

using Sample = std::tuple<at::Tensor, int16_t, std::string, std::map<int, std::vector<float>>>;

constexpr uint64_t kSamples = 3;
constexpr uint64_t kBytes = Slot::kMinBytes;
constexpr uint64_t kNobodys = uint64_t{1} << 40;  // before and behind the slot

[[noreturn]] void found(const char* what) {
  std::fprintf(stderr, "FOUND: %s\n", what);
  std::abort();
}

Sample sample_of(size_t i) {
  if (i == 99) throw std::domain_error("thrown by the dataset");
  return {at::full({2, 3}, static_cast<int>(i), at::kInt),
          static_cast<int16_t>(i),
          "text " + std::to_string(i),
          {{7, {1, 2}}, {9, {3}}}};
}

// A slot in the middle of memory that may not be touched. It goes back to what it was when it was
// sealed, at the cost of the pages written since.
class GuardedSlot {
 public:
  GuardedSlot() {
    void* all = mmap(nullptr, 2 * kNobodys + kBytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    file_ = memfd_create("slot", 0);
    if (all == MAP_FAILED || file_ < 0 || ftruncate(file_, kBytes) != 0) found("no memory");
    base_ = static_cast<std::byte*>(all) + kNobodys;
    map(MAP_SHARED);
  }
  Slot slot() const { return {base_, kBytes, 1}; }
  void seal() { map(MAP_PRIVATE); }
  void restore() { madvise(base_, kBytes, MADV_DONTNEED); }

 private:
  void map(int kind) {
    if (mmap(base_, kBytes, PROT_READ | PROT_WRITE, kind | MAP_FIXED, file_, 0) == MAP_FAILED) {
      found("no memory");
    }
  }

  int file_;
  std::byte* base_;
};

MapFetcher<Made<Sample (*)(size_t)>>& dataset() {
  static MapFetcher<Made<Sample (*)(size_t)>> fetcher({100, sample_of});
  return fetcher;
}

void fill(Slot slot, RowRange rows) { HandWorker(dataset()).work(slot, rows); }

// A batch that is complete but for its collation.
class Scene {
 public:
  Scene(int64_t last, LayoutState first_two) {
    const Slot slot = memory_.slot();
    slot.publish(std::vector<int64_t>{4, 5, last}, 1, {});
    if (first_two != LayoutState::kNone) slot.header().layout_state = first_two;
    fill(slot, {0, 2});
    if (first_two == LayoutState::kWriting) slot.header().layout_state = LayoutState::kNone;
    fill(slot, {2, 1});
    memory_.seal();
  }
  Slot begin() {
    memory_.restore();
    return memory_.slot();
  }

 private:
  GuardedSlot memory_;
};

// The fuzzer's bytes as numbers; zeros behind their end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, data_, std::min(bytes, left_));
    data_ += std::min(bytes, left_);
    left_ -= std::min(bytes, left_);
    return value;
  }
  uint64_t below(uint64_t end) { return number(end > 256 ? 2 : 1) % end; }

 private:
  const uint8_t* data_;
  size_t left_;
};

struct Window {
  uint64_t begin, bytes;
};

void damage(Slot slot, Input& input) {
  const std::array<Window, 6> windows = {{{0, 320},
                                          {slot.kept_layout(), 512},
                                          {slot.new_layout(), 512},
                                          {slot.rows_begin() - Slot::kPage, 256},
                                          {slot.rows_begin(), 512},
                                          {kBytes / 2, 2048}}};
  for (uint64_t left = input.below(8); left > 0; --left) {
    const Window& window = windows[input.below(windows.size())];
    const uint64_t at = input.below(window.bytes - 8);
    const size_t width = size_t{1} << input.below(4);
    const uint64_t value = input.number(width);
    std::memcpy(slot.at(window.begin + at), &value, width);
  }
}

void touch(const at::Tensor& tensor, Slot slot) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.const_data_ptr());
  const auto* base = reinterpret_cast<const uint8_t*>(slot.at(0));
  if (bytes < base + slot.rows_begin() || bytes + tensor.nbytes() > base + kBytes) {
    found("a tensor that does not lie in the slot");
  }
  volatile uint8_t sum = 0;
  for (size_t i = 0; i < tensor.nbytes(); ++i) sum = sum + bytes[i];
}

// Nothing if it is refused in our words.
std::vector<std::string> read(Slot slot, SlotStatus status) {
  try {
    if (status != SlotStatus::kReady) {
      load_failure(slot, slot.header().failure);
      return {};
    }
    BatchLeaves leaves = read_batch(slot, kSamples);
    for (const auto& leaf : leaves.leaves) {
      if (leaf.tensor.defined()) touch(leaf.tensor, slot);
    }
    return std::get<2>(Codec<Sample>::gather(leaves));
  } catch (const c10::Error&) {  // of a tensor with more elements than can be counted
  } catch (const std::runtime_error& error) {
    if (std::strstr(error.what(), "is damaged") == nullptr) found(error.what());
  }
  return {};
}

void next_batch_is_whole(Slot slot) {
  slot.header().budget = 0;  // as the pool sets it
  slot.publish(std::vector<int64_t>{1, 2, 3}, 2, {});
  fill(slot, {0, 3});
  const auto texts = read(slot, collate(slot, dataset(), 0));
  if (texts != std::vector<std::string>{"text 1", "text 2", "text 3"}) found("no whole batch");
}

}  // namespace
}  // namespace stoker::detail

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stoker::detail;
  static std::array<Scene, 5> scenes = {{{6, LayoutState::kNone},
                                         {6, LayoutState::kUnfit},
                                         {6, LayoutState::kWriting},
                                         {99, LayoutState::kNone},
                                         {99, LayoutState::kUnfit}}};
  Input input(data, size);
  const Slot slot = scenes[input.below(scenes.size())].begin();
  damage(slot, input);
  const SlotStatus status = collate(slot, dataset(), 0);
  damage(slot, input);
  read(slot, status);
  next_batch_is_whole(slot);
  return 0;
}
