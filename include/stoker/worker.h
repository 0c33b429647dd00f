// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <typeinfo>

namespace stoker {

namespace detail {

// A dataset, whatever its type. `as` throws std::logic_error if that is another one.
struct AnyDataset {
  void* address = nullptr;
  const std::type_info* type = nullptr;

  void* as(const std::type_info& wanted) const;
};

}  // namespace detail

/// What code inside a dataset's `get` may ask about the place it runs in.
/// Compare `torch.utils.data.get_worker_info`.
struct WorkerInfo {
  int64_t id = 0;           ///< 0 .. num_workers - 1; 0 when `num_workers` is 0
  int64_t num_workers = 0;  ///< as given in the options
  /// Seed of the sample being fetched: a function of the epoch's seed and the sample's position
  /// alone. Seed a generator of your own (a `std::mt19937`, say) with it in each `get`, so that
  /// augmentation does not depend on which worker fetched what before.
  uint64_t seed = 0;

  /// This process's copy of the dataset, as Python's `dataset`: for a `worker_init_fn` that sets it
  /// up. Throws `std::logic_error` if the loader's dataset is of another type than this.
  template <class Dataset>
  Dataset& dataset() const {
    return *static_cast<Dataset*>(any_dataset.as(typeid(Dataset)));
  }
  detail::AnyDataset any_dataset = {};  ///< what `dataset` looks at
};

/// The caller's WorkerInfo while a loader runs `get`, `get_batch`, `open_in_worker` or
/// `worker_init_fn` on this thread; nothing elsewhere. Unlike Python's, it is also set for
/// `num_workers` = 0, so that a dataset that uses `seed` yields the same bytes there.
std::optional<WorkerInfo> worker_info() noexcept;

/// What went wrong in a worker, and where. Thrown in the main process by the loader's iterator.
/// Compare the `RuntimeError`s of Python's DataLoader and `torch::data::WorkerException`.
class WorkerError : public std::runtime_error {
 public:
  /// The facts; each is absent where it does not apply.
  struct Facts {
    std::optional<int64_t> worker_id;
    std::optional<int64_t> pid;
    std::optional<int> signal;             ///< the worker was killed by this signal
    std::optional<int> exit_status;        ///< the worker left with this status
    std::optional<int64_t> index;          ///< the dataset index it was working on
    std::optional<std::string> type_name;  ///< type of the exception that was thrown, demangled
  };

  WorkerError(const std::string& message, Facts facts);

  const Facts& facts() const noexcept { return facts_; }

 private:
  Facts facts_;
};

}  // namespace stoker
