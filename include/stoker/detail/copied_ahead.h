// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/detail/device_copy.h>

#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace stoker::detail {

/// Batches of a source, the next ones on their way to the device while one is used. `Tensors` finds
/// the tensors of a batch: `std::vector<at::Tensor*>(Batch&)`.
template <class Batch, class Tensors>
class CopiedAhead {
 public:
  CopiedAhead(at::Device device, DevicePrefetcherOptions options, std::string_view name)
      : copy_(device, std::move(options), name) {}

  /// The next batch, on the device; nothing at the end. `pull` gives the source's batches, and
  /// nothing at its end. What it throws comes behind the batches before, and it is asked again
  /// afterwards; what goes wrong in a copy is thrown each time.
  template <class Pull>
  std::optional<Batch> next(Pull pull) {
    while (!error_ && ahead_.size() < want_ && add(pull)) {
    }
    want_ = copy_.depth();
    if (ahead_.empty()) return end();
    Batch batch = std::move(ahead_.front());
    ahead_.pop_front();
    copy_.finish(Tensors()(batch));
    return batch;
  }

  /// Forgets all that was copied ahead: another epoch begins.
  void drop() {
    ahead_.clear();
    copy_.drop();
    error_ = nullptr;
    failed_ = false;
    want_ = 1;
  }
  bool empty() const { return ahead_.empty(); }
  at::Device device() const { return copy_.device(); }

 private:
  template <class Pull>
  bool add(Pull& pull) {
    try {
      std::optional<Batch> batch = pull();
      if (!batch) return false;
      failed_ = true;
      copy_.start(Tensors()(*batch));
      failed_ = false;
      ahead_.push_back(*std::move(batch));
      return true;
    } catch (...) {
      error_ = std::current_exception();
      return false;
    }
  }

  std::optional<Batch> end() {
    if (!error_) return std::nullopt;
    const std::exception_ptr error = failed_ ? error_ : std::exchange(error_, nullptr);
    std::rethrow_exception(error);
  }

  DeviceCopy copy_;
  std::deque<Batch> ahead_;
  size_t want_ = 1;  // at first: the first batch must not wait for the second
  std::exception_ptr error_;
  bool failed_ = false;  // in a copy, not in the source
};

}  // namespace stoker::detail
