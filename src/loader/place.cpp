// SPDX-License-Identifier: BSD-3-Clause
#include "loader/place.h"

#include <sstream>
#include <stdexcept>
#include <string>

namespace stoker::detail {

void Place::deliver(uint64_t position, uint64_t n) {
  ahead_.emplace(position, n);
  for (auto next = ahead_.begin(); next != ahead_.end() && next->first == samples_;
       next = ahead_.begin()) {
    samples_ += next->second;
    ++batches_;
    ahead_.erase(next);
  }
}

StateDict Place::state_dict() const {
  StateDict state;
  state.set("batches", batches_);
  state.set("samples", static_cast<int64_t>(samples_));
  if (ahead_.empty()) return state;
  std::ostringstream text;
  for (const auto& [position, n] : ahead_) text << position << ' ' << n << ' ';
  state.set("ahead", text.str());
  return state;
}

Place Place::from(const StateDict& state) {
  Place place;
  place.batches_ = state.integer("batches");
  const int64_t samples = state.integer("samples");
  bool good = place.batches_ >= 0 && samples >= 0;
  place.samples_ = static_cast<uint64_t>(samples);
  if (state.contains("ahead")) {
    std::istringstream text(state.text("ahead"));
    for (int64_t position = 0, n = 0; good && text >> position;) {
      good = text >> n && n > 0 && position > samples && n <= INT64_MAX - position;
      place.ahead_.emplace(position, n);
    }
    good = good && text.eof();
  }
  if (!good) throw std::invalid_argument("stoker: the state's place in the epoch is damaged");
  return place;
}

}  // namespace stoker::detail
