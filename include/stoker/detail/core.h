// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/detail/flat_sample.h>
#include <stoker/options.h>
#include <stoker/state_dict.h>
#include <stoker/stats.h>
#include <stoker/worker.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace stoker::detail {

/// What a batch is made of its samples.
enum class BatchForm : uint8_t {
  kStacked,   ///< all of them, leaf by leaf
  kSingle,    ///< the only one, as it is
  kCollated,  ///< what a function of the user's returns
};

/// A dataset, seen from the compiled core. A sample that it hands out points into memory that stays
/// as it is until the next but one was handed out, or until `release`. What only datasets of the
/// other kind have throws std::logic_error.
class Fetcher {
 public:
  virtual ~Fetcher() = default;

  /// Main process: the number of samples, where the dataset knows it.
  virtual std::optional<size_t> size() = 0;
  /// Whether whole batches are to be fetched with `fetch` instead of samples with `get`.
  virtual bool whole_batches() const { return false; }
  /// Whether samples come from a stream instead, and have no indices.
  virtual bool is_stream() const { return false; }

  virtual AnyDataset any_dataset() = 0;

  /// Worker: the epoch that the next samples are of, from 0.
  virtual void set_epoch(int64_t epoch) = 0;

  /// Worker: lets the dataset open what each process needs for itself. Before the first sample.
  virtual void open_in_worker(const WorkerInfo&) {}
  /// Worker: lets the dataset close that again. After the last sample, if the worker ends in order.
  virtual void close_in_worker() {}
  /// Worker: one sample.
  virtual const FlatSample& get(size_t index);
  /// Worker: all samples of a batch; returns how many came.
  virtual size_t fetch(std::span<const size_t> indices);
  /// Worker: sample i of those that `fetch` fetched.
  virtual const FlatSample& fetched(size_t i);

  /// Worker: writes all these samples' tensors, leaf by leaf; false if it cannot.
  virtual bool gather_rows(std::span<const size_t>, std::span<std::byte* const>) { return false; }
  virtual bool gathers_rows() const { return false; }  ///< there is a chance that it can

  /// Worker: begins the stream anew; from a state that `stream_state` told, if it is not empty.
  virtual void open_stream(const std::string& state);
  /// Worker: its next sample; null at its end.
  virtual const FlatSample* next();
  /// Worker: leaves out that many samples, or what is left.
  virtual void skip(uint64_t samples);
  /// Worker: where the stream is; empty if it cannot tell.
  virtual std::string stream_state();

  virtual BatchForm form() const = 0;
  /// Worker: the batch that the user's function makes of samples that come as leaves.
  virtual const FlatSample& collate(std::vector<BatchLeaves>& samples) = 0;

  /// Worker: what to call the leaves of the sample handed out last.
  virtual std::vector<std::string> leaf_paths() = 0;
  /// Worker: drops the samples.
  virtual void release() = 0;
};

/// The loader without its types: epochs, workers, slots. Main process only, and like Python's
/// loader to be used by one thread at a time, not always the same.
class LoaderCore {
 public:
  /// Checks the options, forks the supervisor (unless `num_workers` is 0 or workers do not
  /// persist).
  LoaderCore(std::unique_ptr<Fetcher> fetcher, DataLoaderOptions options);
  ~LoaderCore();

  /// Begins an epoch and ends the one before. Returns its number, from 1.
  uint64_t begin_epoch();
  /// Waits for the next batch of that epoch; false at its end. Throws WorkerError, what the sampler
  /// throws, and with `num_workers` = 0 what the dataset throws; `std::logic_error` for an epoch
  /// that a later one ended.
  bool next(uint64_t epoch, BatchLeaves& batch);
  /// The batch that `next` gave could not be used: ends the epoch, whose further `next` throw this.
  void end_with(uint64_t epoch, std::exception_ptr error);
  /// The iterator of that epoch is gone: what is still in flight need not be finished.
  void abandon(uint64_t epoch) noexcept;

  /// Batches per epoch, where the sampler knows it.
  std::optional<int64_t> size() const;
  /// See DataLoader.
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

  const DataLoaderOptions& options() const;
  const LoaderStats& stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stoker::detail
