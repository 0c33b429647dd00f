// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The batches of a dataset that is a stream: each worker has its own, and the batches come from the
// workers by turns, as in Python's DataLoader. A worker whose stream ended is left out.

#include <stoker/options.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "loader/task_source.h"

namespace stoker::detail {

// Main process only.
class StreamSource final : public TaskSource {
 public:
  using DatasetSize = std::function<std::optional<size_t>()>;

  StreamSource(const DataLoaderOptions& options, DatasetSize dataset_size)
      : options_(options), dataset_size_(std::move(dataset_size)) {}

  void deliver(const Delivery& delivery) override;
  void end_stream(uint32_t worker) override { streams_.at(worker).ended = true; }
  // Of the dataset's own size, as Python's: however it is shared among the workers.
  std::optional<int64_t> batches_per_epoch() const override;

  StateDict state_dict() const override;
  void load_state_dict(const StateDict&) override {}
  StateDict place() const override;
  void resume(const StateDict& place) override;
  void check(const StateDict& state, const StateDict& place) const override;

 protected:
  void begin() override;
  std::optional<Task> draw() override;

 private:
  struct Stream {
    int64_t asked = 0;      // samples asked for
    int64_t delivered = 0;  // .. and handed out
    std::string state;      // after those
    bool ended = false;     // its worker said so; not a part of the state, as it is said again
    bool fresh = true;      // nothing has been asked of its worker
  };

  struct Place {
    std::vector<Stream> streams;
    size_t turn = 0;
  };
  size_t num_streams() const {
    return static_cast<size_t>(std::max<int64_t>(options_.num_workers, 1));
  }
  Place read(const StateDict& place) const;

  const DataLoaderOptions& options_;
  DatasetSize dataset_size_;
  std::vector<Stream> streams_;  // by worker; one if the caller fetches
  size_t turn_ = 0;              // the worker to be asked next
  size_t place_ = 0;             // .. whose batch is to be delivered next
};

}  // namespace stoker::detail
