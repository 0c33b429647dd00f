// SPDX-License-Identifier: BSD-3-Clause
#include "memory/row_layout.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace stoker::detail {

using Kind = FlatSample::Kind;

bool is_plain(const at::Tensor& t) {
  return t.defined() && t.device().is_cpu() && !t.is_nested() && t.layout() == at::kStrided &&
         !t.is_quantized();
}

namespace {

std::string what_is_wrong(const at::Tensor& t) {
  if (!t.defined()) return "is an undefined tensor";
  std::ostringstream text;
  if (!t.device().is_cpu()) {
    text << "is a tensor on " << t.device()
         << "; return CPU tensors from the dataset and move the batch to the device";
  } else if (t.is_nested()) {
    text << "is a nested tensor; return a std::vector of tensors instead";
  } else if (t.is_quantized()) {
    text << "is a quantized tensor; return its int_repr() instead";
  } else {
    text << "is a tensor of layout " << t.layout() << "; return a dense (strided) one";
  }
  return text.str();
}

at::IntArrayRef leaf_sizes(const FlatSample::Leaf& leaf) {
  return leaf.kind == Kind::kTensor ? leaf.tensor->sizes() : at::IntArrayRef{};
}

RowLayout::Leaf layout_of(const FlatSample::Leaf& leaf) {
  RowLayout::Leaf result{};
  result.kind = leaf.kind;
  switch (leaf.kind) {
    case Kind::kTensor:
      result.dtype = leaf.tensor->scalar_type();
      result.ndim = static_cast<uint32_t>(leaf.tensor->dim());
      // An expanded tensor may have more elements than there are bytes in the world.
      if (__builtin_mul_overflow(static_cast<uint64_t>(leaf.tensor->numel()),
                                 static_cast<uint64_t>(leaf.tensor->itemsize()),
                                 &result.row_bytes)) {
        result.row_bytes = ~uint64_t{0};
      }
      break;
    case Kind::kNumber:
      result.dtype = leaf.dtype;
      result.row_bytes = leaf.number_bytes;
      break;
    case Kind::kString:
      result.dtype = at::ScalarType::Undefined;
      result.row_bytes = sizeof(StringRow);
      break;
  }
  return result;
}

// 0 for what is no dtype, or none that a batch can have.
uint64_t item_bytes(at::ScalarType dtype) {
  if (dtype < at::ScalarType{} || dtype >= at::ScalarType::Undefined || at::isQIntType(dtype)) {
    return 0;
  }
  return at::elementSize(dtype);
}

bool is_inside(uint64_t whole, uint64_t offset, uint64_t size) {
  return offset <= whole && size <= whole - offset;
}

template <class T>
const T* inside(const std::byte* base, uint64_t offset) {
  return reinterpret_cast<const T*>(base + offset);
}

}  // namespace

std::optional<uint64_t> RowLayout::bytes_at(Slot slot, uint64_t offset) {
  if (!slot.may_be_layout(offset, sizeof(Header))) return std::nullopt;
  const uint64_t bytes = RowLayout(slot.at(offset)).encoded_bytes();
  return slot.may_be_layout(offset, bytes) ? std::optional(bytes) : std::nullopt;
}

std::vector<std::byte> RowLayout::copy(Slot slot, uint64_t offset) {
  const auto bytes = bytes_at(slot, offset);
  if (!bytes) throw_damaged("the layout");
  std::vector<std::byte> copy(slot.at(offset), slot.at(offset) + *bytes);
  if (!RowLayout(copy.data()).is_sound(*bytes)) throw_damaged("the layout");
  return copy;
}

bool RowLayout::is_sound_at(Slot slot, uint64_t offset) {
  const auto bytes = bytes_at(slot, offset);
  return bytes && RowLayout(slot.at(offset)).is_sound(*bytes);
}

bool RowLayout::is_sound(uint64_t bytes) const {
  if (bytes < sizeof(Header) || encoded_bytes() != bytes) return false;
  if (header().num_leaves > (bytes - sizeof(Header)) / sizeof(Leaf)) return false;
  if (!is_inside(bytes, header().structure_at, header().structure_bytes)) return false;
  return std::ranges::all_of(leaves(), [this](const Leaf& leaf) { return is_sound(leaf); });
}

bool RowLayout::is_sound(const Leaf& leaf) const {
  if (!is_inside(encoded_bytes(), leaf.path_at, leaf.path_bytes)) return false;
  if (leaf.kind == Kind::kString) {
    return leaf.row_bytes == sizeof(StringRow) && leaf.ndim == 0 &&
           leaf.dtype == at::ScalarType::Undefined;
  }
  if (leaf.kind == Kind::kNumber ? leaf.ndim != 0 : leaf.kind != Kind::kTensor) return false;
  if (leaf.sizes_at % sizeof(int64_t) != 0 ||
      !is_inside(encoded_bytes(), leaf.sizes_at, leaf.ndim * sizeof(int64_t))) {
    return false;
  }
  uint64_t row_bytes = item_bytes(leaf.dtype);
  for (const int64_t size : sizes(leaf)) {
    if (size < 0 || __builtin_mul_overflow(row_bytes, static_cast<uint64_t>(size), &row_bytes)) {
      return false;
    }
  }
  return item_bytes(leaf.dtype) > 0 && row_bytes == leaf.row_bytes;
}

std::vector<std::byte> RowLayout::encode(const FlatSample& sample,
                                         const std::vector<std::string>& paths) {
  std::vector<std::byte> out(sizeof(Header) + sample.leaves().size() * sizeof(Leaf));
  const auto append = [&out](const void* data, size_t bytes) {
    const auto at = static_cast<uint32_t>(out.size());
    const auto* begin = static_cast<const std::byte*>(data);
    out.insert(out.end(), begin, begin + bytes);
    return at;
  };
  std::vector<Leaf> leaves;
  for (size_t i = 0; i < sample.leaves().size(); ++i) {
    const FlatSample::Leaf& leaf = sample.leaves()[i];
    if (leaf.kind == Kind::kTensor && !is_plain(*leaf.tensor)) {
      throw std::invalid_argument("stoker: the sample" +
                                  (paths[i].empty() ? "" : "'s field " + paths[i]) + " " +
                                  what_is_wrong(*leaf.tensor));
    }
    leaves.push_back(layout_of(leaf));
    leaves.back().sizes_at = append(leaf_sizes(leaf).data(), leaf_sizes(leaf).size() * 8);
  }
  Header header{static_cast<uint32_t>(leaves.size()), 0,
                static_cast<uint32_t>(sample.structure().size()), 0};
  header.structure_at = append(sample.structure().data(), sample.structure().size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    leaves[i].path_bytes = static_cast<uint32_t>(paths[i].size());
    leaves[i].path_at = append(paths[i].data(), paths[i].size());
  }
  out.resize(align64(out.size()));
  header.total_bytes = static_cast<uint32_t>(out.size());
  std::memcpy(out.data(), &header, sizeof header);
  if (!leaves.empty()) {
    std::memcpy(out.data() + sizeof header, leaves.data(), leaves.size() * sizeof(Leaf));
  }
  return out;
}

std::span<const RowLayout::Leaf> RowLayout::leaves() const {
  return {inside<Leaf>(bytes_, sizeof(Header)), header().num_leaves};
}

at::IntArrayRef RowLayout::sizes(const Leaf& leaf) const {
  return {inside<int64_t>(bytes_, leaf.sizes_at), leaf.ndim};
}

std::string_view RowLayout::path(const Leaf& leaf) const {
  return {inside<char>(bytes_, leaf.path_at), leaf.path_bytes};
}

std::string_view RowLayout::structure() const {
  return {inside<char>(bytes_, header().structure_at), header().structure_bytes};
}

bool RowLayout::operator==(const RowLayout& other) const {
  const auto mine = leaves();
  const auto theirs = other.leaves();
  if (mine.size() != theirs.size() || structure() != other.structure()) return false;
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i].kind != theirs[i].kind || mine[i].dtype != theirs[i].dtype ||
        sizes(mine[i]) != other.sizes(theirs[i])) {
      return false;
    }
  }
  return true;
}

std::optional<uint64_t> RowLayout::rows_bytes(uint64_t n) const {
  constexpr uint64_t kMost = uint64_t{1} << 46;  // of user address space on x86-64
  if (n == 0) return 0;                          // of a header that was written over
  uint64_t bytes = 0;
  for (const Leaf& leaf : leaves()) {
    if (leaf.row_bytes > kMost / n) return std::nullopt;
    bytes += align64(leaf.row_bytes * n);
    if (bytes > kMost) return std::nullopt;
  }
  return bytes;
}

void copy_row(const RowLayout& layout, const std::byte* from, std::byte* rows, uint64_t n,
              uint64_t row) {
  for (const RowLayout::Leaf& leaf : layout.leaves()) {
    if (leaf.row_bytes > 0) {
      std::memcpy(rows + row * leaf.row_bytes, from, leaf.row_bytes);
    }
    from += align64(leaf.row_bytes);
    rows += align64(leaf.row_bytes * n);
  }
}

std::string describe(const RowLayout& layout, const RowLayout::Leaf& leaf) {
  if (leaf.kind == Kind::kString) return "string";
  std::ostringstream text;
  text << leaf.dtype << " " << layout.sizes(leaf);
  return text.str();
}

}  // namespace stoker::detail
