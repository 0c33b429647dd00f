// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A dataset that says in place what its samples are, and ways to read a loader's batches.

#include <ATen/core/Tensor.h>
#include <stoker/dataloader.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stoker {

// A dataset made of a function of the index.
template <class Make>
struct Made {
  size_t count;
  Make make;

  auto get(size_t index) { return make(index); }
  size_t size() const { return count; }
};
template <class Make>
Made(size_t, Make) -> Made<Make>;

// Sample i is i.
struct Counting {
  size_t count;

  int64_t get(size_t index) const { return static_cast<int64_t>(index); }
  size_t size() const { return count; }
};

using Numbers = std::vector<int64_t>;

inline Numbers numbers(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

// The numbers 0 .. count - 1.
inline Numbers up_to(int64_t count) {
  Numbers all;
  for (int64_t i = 0; i < count; ++i) all.push_back(i);
  return all;
}

// One epoch of a loader whose samples are numbers: batch by batch.
template <class Loader>
std::vector<Numbers> batches_of(Loader& loader) {
  std::vector<Numbers> all;
  for (auto& batch : loader) all.push_back(numbers(batch));
  return all;
}

// The same without the borders between batches.
template <class Loader>
Numbers epoch_of(Loader& loader) {
  Numbers all;
  for (const Numbers& batch : batches_of(loader)) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

// The error that an epoch ends with; nothing for a clean end.
template <class Loader>
std::optional<WorkerError> error_of(Loader& loader) {
  try {
    for ([[maybe_unused]] auto& batch : loader) {
    }
  } catch (const WorkerError& error) {
    return error;
  }
  return std::nullopt;
}

// What an exception of that type says that the action throws.
template <class Error, class Action>
std::string text_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace stoker
