// SPDX-License-Identifier: BSD-3-Clause
#include "worker/stream_reader.h"

#include <utility>

namespace stoker::detail {

bool StreamReader::must_open(const Origin& batch) const {
  return !open_ || batch.epoch != epoch_ || batch.epoch_seed != epoch_seed_ ||
         batch.first_position < number_;
}

void StreamReader::open(const Origin& batch, const std::string& state) {
  open_ = ended_ = false;
  fetcher_.set_epoch(batch.epoch);
  fetcher_.open_stream(state);
  epoch_ = batch.epoch;
  epoch_seed_ = batch.epoch_seed;
  number_ = state.empty() ? 0 : batch.first_position;
  // A state is told behind an own sample: those of the others up to the next one are still to come.
  before_ = !shared_ ? 0 : (state.empty() ? worker_ : workers_ - 1) * run_;
  open_ = true;
}

void StreamReader::skip_to(const Origin& batch) {
  const uint64_t own = batch.first_position - number_;
  if (own == 0 || ended_) return;
  const uint64_t each = shared_ ? workers_ : 1;
  fetcher_.skip(own * each);
  number_ = batch.first_position;
}

void StreamReader::skip_others() {
  if (ended_ || before_ == 0) return;
  fetcher_.skip(std::exchange(before_, 0));
}

const FlatSample* StreamReader::next() {
  if (ended_) return nullptr;
  open_ = false;  // should the user's code throw
  const FlatSample* const sample = fetcher_.next();
  open_ = true;
  ended_ = sample == nullptr;
  if (!ended_) ++number_;
  before_ = shared_ && number_ % run_ == 0 ? (workers_ - 1) * run_ : 0;
  return sample;
}

}  // namespace stoker::detail
