// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A worker's stream: where it is, and how it gets to where a batch begins. Batches of one epoch
// usually follow each other; after a restart, or when an epoch is resumed, the stream is opened
// anew and samples are left out.
//
// Process safety: its worker only (with num_workers = 0: main).

#include <stoker/detail/core.h>
#include <stoker/options.h>

#include <cstdint>
#include <string>

#include "memory/slot.h"

namespace stoker::detail {

class StreamReader {
 public:
  // One of `workers` readers. Where the stream is shared, each takes by turns a run of samples
  // (one, or a batch); its own are counted 0, 1, ..
  StreamReader(Fetcher& fetcher, uint32_t worker, uint32_t workers, Shard shard,
               uint64_t batch_size)
      : fetcher_(fetcher),
        worker_(worker),
        workers_(workers),
        shared_(shard != Shard::kNone),
        run_(shard == Shard::kBatches ? batch_size : 1) {}

  // Whether the batch does not follow what was read last.
  bool must_open(const Origin& batch) const;
  // Opens the stream for the epoch of this batch; it is at `state` if that is not empty, or else at
  // its start. The caller has seeded the generators.
  void open(const Origin& batch, const std::string& state);
  // Leaves out what is before this batch.
  void skip_to(const Origin& batch);

  // Leaves out what is before its next sample; that draws, so the caller seeds after it.
  void skip_others();
  // Its next sample; null at the end of the stream, and from then on.
  const FlatSample* next();
  // Where the stream is; empty if it cannot tell.
  std::string state() { return fetcher_.stream_state(); }

  // The epoch's position of this stream's sample `number`: no other sample of any stream has it,
  // and in a stream that is shared it is the sample's place there.
  uint64_t position(uint64_t number) const {
    return (number / run_ * workers_ + worker_) * run_ + number % run_;
  }

 private:
  Fetcher& fetcher_;
  uint32_t worker_;
  uint32_t workers_;
  bool shared_;
  uint64_t run_;
  bool open_ = false;
  bool ended_ = false;
  int64_t epoch_ = 0;
  uint64_t epoch_seed_ = 0;
  uint64_t number_ = 0;  // of its next own sample
  uint64_t before_ = 0;  // samples of the whole stream that come before that one
};

}  // namespace stoker::detail
