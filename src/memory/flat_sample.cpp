// SPDX-License-Identifier: BSD-3-Clause
#include <stoker/detail/flat_sample.h>

#include <algorithm>
#include <stdexcept>

namespace stoker::detail {

void throw_damaged(const char* what) {
  throw std::runtime_error(std::string("stoker: ") + what +
                           " of a batch in shared memory is damaged: code that the dataset calls, "
                           "or the program, wrote over the loader's memory; build it with "
                           "-fsanitize=address to see where");
}

BatchLeaves::Leaf& BatchLeaves::next_leaf() {
  if (next_leaf_ == leaves.size()) throw_damaged("the structure");
  return leaves[next_leaf_++];
}

at::Tensor BatchLeaves::take_tensor() {
  at::Tensor tensor = std::move(next_leaf().tensor);
  if (!tensor.defined()) throw_damaged("the structure");
  return tensor;
}

void BatchLeaves::take_number(void* value, size_t bytes) {
  const at::Tensor number = take_tensor();
  if (number.nbytes() != bytes) throw_damaged("the structure");
  std::memcpy(value, number.const_data_ptr(), bytes);
}

std::vector<std::string> BatchLeaves::take_strings() {
  Leaf& leaf = next_leaf();
  if (leaf.tensor.defined()) throw_damaged("the structure");
  return std::move(leaf.strings);
}

uint64_t BatchLeaves::take_length() {
  uint64_t value = 0;
  if (structure.size() - next_word_ < sizeof value) throw_damaged("the structure");
  std::memcpy(&value, structure.data() + next_word_, sizeof value);
  next_word_ += sizeof value;
  return value;
}

std::string BatchLeaves::take_key() {
  const uint64_t size = take_length();
  if (structure.size() - next_word_ < size) throw_damaged("the structure");
  next_word_ += size;
  return structure.substr(next_word_ - size, size);
}

uint64_t BatchLeaves::at_most(uint64_t elements) const {
  return std::min<uint64_t>(elements, leaves.size() - next_leaf_ + structure.size() - next_word_);
}

}  // namespace stoker::detail
