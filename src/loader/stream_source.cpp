// SPDX-License-Identifier: BSD-3-Clause
#include "loader/stream_source.h"

#include <stdexcept>
#include <utility>

namespace stoker::detail {

namespace {

std::string name(size_t worker) { return "worker" + std::to_string(worker); }

}  // namespace

void StreamSource::begin() {
  streams_.assign(num_streams(), {});
  turn_ = place_ = 0;
}

std::optional<Task> StreamSource::draw() {
  for (size_t looked = 0; looked < streams_.size(); ++looked) {
    const size_t worker = turn_;
    turn_ = (turn_ + 1) % streams_.size();
    Stream& stream = streams_[worker];
    if (stream.ended) continue;
    Task task;
    task.num_samples = static_cast<uint64_t>(options_.batch_size);
    task.worker = static_cast<uint32_t>(worker);
    task.position = static_cast<uint64_t>(stream.asked);
    if (std::exchange(stream.fresh, false)) task.stream_state = stream.state;
    stream.asked += options_.batch_size;
    return task;
  }
  return std::nullopt;
}

void StreamSource::deliver(const Delivery& delivery) {
  const size_t worker = delivery.worker.value();
  Stream& stream = streams_.at(worker);
  stream.delivered += static_cast<int64_t>(delivery.samples);
  stream.state = delivery.stream_state;
  place_ = (worker + 1) % streams_.size();
}

std::optional<int64_t> StreamSource::batches_per_epoch() const {
  const auto size = dataset_size_();
  if (!size) return std::nullopt;
  const auto samples = static_cast<int64_t>(*size);
  const bool tail = !options_.drop_last && samples % options_.batch_size != 0;
  return samples / options_.batch_size + (tail ? 1 : 0);
}

// Other workers, or other batches of theirs, would make other batches of the rest.
StateDict StreamSource::state_dict() const {
  StateDict state;
  state.set("batch_size", options_.batch_size);
  state.set("num_workers", options_.num_workers);
  return state;
}

void StreamSource::check(const StateDict& state, const StateDict& place) const {
  for (const auto& [name, mine] : {std::pair("batch_size", options_.batch_size),
                                   std::pair("num_workers", options_.num_workers)}) {
    if (const int64_t theirs = state.integer(name); theirs != mine) {
      throw std::invalid_argument("stoker: the state is one of a loader whose " +
                                  std::string(name) + " is " + std::to_string(theirs) +
                                  ", and here it is " + std::to_string(mine));
    }
  }
  if (!place.empty()) read(place);
}

StateDict StreamSource::place() const {
  StateDict place;
  place.set("turn", static_cast<int64_t>(place_));
  for (size_t worker = 0; worker < streams_.size(); ++worker) {
    const Stream& stream = streams_[worker];
    place.set(name(worker) + ".samples", stream.delivered);
    if (!stream.state.empty()) place.set(name(worker) + ".state", stream.state);
  }
  return place;
}

StreamSource::Place StreamSource::read(const StateDict& state) const {
  const auto require = [](bool sound) {
    if (!sound) throw std::invalid_argument("stoker: the state's place in the streams is damaged");
  };
  Place place;
  const int64_t turn = state.integer("turn");
  require(turn >= 0 && static_cast<size_t>(turn) < num_streams());
  place.turn = static_cast<size_t>(turn);
  for (size_t worker = 0; worker < num_streams(); ++worker) {
    Stream& stream = place.streams.emplace_back();
    stream.delivered = stream.asked = state.integer(name(worker) + ".samples");
    // So that the numbers of all workers' samples can be counted.
    const int64_t most = INT64_MAX / static_cast<int64_t>(num_streams()) - options_.batch_size;
    require(stream.delivered >= 0 && stream.delivered <= most);
    const std::string text = name(worker) + ".state";
    if (state.contains(text)) stream.state = state.text(text);
  }
  return place;
}

void StreamSource::resume(const StateDict& state) {
  Place place = read(state);
  streams_ = std::move(place.streams);
  turn_ = place_ = place.turn;
}

}  // namespace stoker::detail
