// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <stoker/stats.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stoker::detail {

/// Throws std::runtime_error: that part of what lies in shared memory cannot be what was written.
[[noreturn]] void throw_damaged(const char* what);

/// A sample taken apart: its leaves in order, and the part of its structure that only the run
/// knows (lengths of vectors, keys of maps). The leaves point into the sample, which must live as
/// long as they are used. This and BatchLeaves are all that the compiled part sees of user types.
class FlatSample {
 public:
  enum class Kind : uint8_t { kTensor, kNumber, kString };

  struct Leaf {
    Kind kind;
    at::ScalarType dtype = at::ScalarType::Undefined;  // of a number
    uint8_t number_bytes = 0;
    std::array<std::byte, 16> number;  // the value itself
    const at::Tensor* tensor = nullptr;
    std::string_view text;
  };

  const std::vector<Leaf>& leaves() const { return leaves_; }
  const std::string& structure() const { return structure_; }

  void clear() {
    leaves_.clear();
    structure_.clear();
  }
  void tensor(const at::Tensor& value) {
    leaves_.emplace_back().kind = Kind::kTensor;
    leaves_.back().tensor = &value;
  }
  void number(at::ScalarType dtype, const void* value, size_t bytes) {
    Leaf& leaf = leaves_.emplace_back();
    leaf.kind = Kind::kNumber;
    leaf.dtype = dtype;
    leaf.number_bytes = static_cast<uint8_t>(bytes);
    std::memcpy(leaf.number.data(), value, bytes);
  }
  void string(std::string_view value) {
    leaves_.emplace_back().kind = Kind::kString;
    leaves_.back().text = value;
  }
  void length(uint64_t value) {
    structure_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void key(std::string_view value) {
    length(value.size());
    structure_.append(value);
  }
  // Names of places matter only to LeafPaths.
  void enter_index(size_t) {}
  void enter_name(std::string_view) {}
  void enter_key(std::string_view) {}
  void leave() {}

 private:
  std::vector<Leaf> leaves_;
  std::string structure_;
};

/// Collects, with the same walk over the sample, what to call each leaf in a message: `[1]`,
/// `.target`, `["boxes"][0]`; empty for a sample that is a single leaf.
class LeafPaths {
 public:
  std::vector<std::string> take() { return std::move(paths_); }

  void tensor(const at::Tensor&) { paths_.push_back(path_); }
  void number(at::ScalarType, const void*, size_t) { paths_.push_back(path_); }
  void string(std::string_view) { paths_.push_back(path_); }
  void length(uint64_t) {}
  void key(std::string_view) {}
  void enter_index(size_t index) { enter("[", std::to_string(index), "]"); }
  void enter_name(std::string_view name) { enter(".", name, ""); }
  void enter_key(std::string_view key) { enter("[\"", key, "\"]"); }
  void leave() {
    path_.resize(starts_.back());
    starts_.pop_back();
  }

 private:
  void enter(std::string_view before, std::string_view step, std::string_view after) {
    starts_.push_back(path_.size());
    path_.append(before).append(step).append(after);
  }

  std::string path_;
  std::vector<size_t> starts_;
  std::vector<std::string> paths_;
};

/// A batch as the core hands it out: one entry per leaf, and the structure its samples share.
/// `take_*` give the entries out in order, as the sample was taken apart, and throw
/// std::runtime_error if there is no such entry: a worker's code may have damaged the structure.
class BatchLeaves {
 public:
  struct Leaf {
    at::Tensor tensor;                 // [n, ...]
    std::vector<std::string> strings;  // of a string leaf: n of them
    bool is_number = false;            // take_number reads the tensor: it stays on the host
  };
  std::vector<Leaf> leaves;
  std::string structure;

  /// Which batch it is, for what keeps account of those that were handed out.
  struct Delivery {
    uint64_t position = 0;  // of its first sample, in the epoch or in a worker's stream
    uint64_t samples = 0;
    std::optional<uint32_t> worker = std::nullopt;  // whose stream it is
    std::string stream_state = {};                  // after it, if the stream tells
    uint64_t end = 0;                               // behind the position of its last sample
    std::vector<BadSample> bad_samples = {};        // left out before that, or replaced in it
  };
  Delivery delivery;

  at::Tensor take_tensor();
  /// Of a batch that is a single sample: a number of that many bytes.
  void take_number(void* value, size_t bytes);
  std::vector<std::string> take_strings();
  uint64_t take_length();
  std::string take_key();
  /// Of so many elements, those that what is left can make, if each takes something of it.
  uint64_t at_most(uint64_t elements) const;
  bool has_more() const { return next_leaf_ < leaves.size(); }
  /// Ready for the next batch; keeps its memory.
  void clear() {
    leaves.clear();
    structure.clear();
    delivery = {};
    next_leaf_ = next_word_ = 0;
  }

 private:
  Leaf& next_leaf();

  size_t next_leaf_ = 0;
  size_t next_word_ = 0;
};

}  // namespace stoker::detail
