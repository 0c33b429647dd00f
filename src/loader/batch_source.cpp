// SPDX-License-Identifier: BSD-3-Clause
#include "loader/batch_source.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace stoker::detail {

BatchSource::BatchSource(const DataLoaderOptions& options, DatasetSize dataset_size)
    : options_(options),
      dataset_size_(std::move(dataset_size)),
      size_(dataset_size_()),
      sampler_(make_sampler(drops_in_sampler())) {}

int64_t BatchSource::known_size() const {
  const auto size = dataset_size_();
  if (!size) {
    throw std::invalid_argument(
        "stoker: the dataset has no size; give a sampler or a batch_sampler, or let size() return "
        "how many samples there are");
  }
  return static_cast<int64_t>(*size);
}

std::shared_ptr<Sampler<std::vector<int64_t>>> BatchSource::make_sampler(bool drop_last) const {
  if (options_.batch_sampler) return options_.batch_sampler;
  std::shared_ptr<Sampler<int64_t>> sampler = options_.sampler;
  if (!sampler && options_.shuffle) {
    sampler = std::make_shared<RandomSampler>(known_size(), options_.generator);
  } else if (!sampler) {
    sampler = std::make_shared<SequentialSampler>(known_size());
  }
  return std::make_shared<BatchSampler>(sampler, options_.batch_size, drop_last);
}

void BatchSource::begin() {
  if (const auto size = dataset_size_(); size != size_) {  // it may have grown
    size_ = size;
    sampler_ = make_sampler(drops_in_sampler());
  }
  sampler_->reset();
  place_ = {};
  position_ = 0;
}

std::optional<Task> BatchSource::next() {
  if (skips()) return next_full();
  auto task = take();
  while (task && place_.was_delivered(task->position)) task = take();
  return task;
}

// Where samples were left out of a batch that was given back, those behind move up.
std::optional<Task> BatchSource::next_full() {
  const auto full = static_cast<uint64_t>(options_.batch_size);
  Task task;
  while (task.num_samples < full) {
    std::optional<Task> more = take();
    if (!more) break;
    uint64_t i = 0;
    for (; i < more->num_samples && task.num_samples < full; ++i) {
      if (more->position_of(i) < place_.samples()) continue;  // delivered before a resume
      task.indices.push_back(more->indices[i]);
      task.positions.push_back(more->position_of(i));
      ++task.num_samples;
    }
    if (i == more->num_samples) continue;
    Task rest;
    for (; i < more->num_samples; ++i, ++rest.num_samples) {
      rest.indices.push_back(more->indices[i]);
      rest.positions.push_back(more->position_of(i));
    }
    rest.position = rest.positions.front();
    give_back(std::move(rest));
  }
  if (task.num_samples == 0) return std::nullopt;
  task.position = task.positions.front();
  if (task.num_samples == full || !options_.drop_last) return task;
  give_back(std::move(task));  // batches before it may still need its samples
  return std::nullopt;
}

// With kSkip batches are delivered in order, and what lies between two of them was left out.
void BatchSource::deliver(const Delivery& delivery) {
  if (skips()) {
    place_.deliver(place_.samples(), delivery.end - place_.samples());
  } else {
    place_.deliver(delivery.position, delivery.samples);
  }
}

std::optional<Task> BatchSource::draw() {
  auto batch = sampler_->next();
  if (!batch) return std::nullopt;
  if (batch->empty()) {
    throw std::invalid_argument("stoker: the batch_sampler yielded a batch without indices");
  }
  for (const int64_t index : *batch) {
    if (index < 0 || (size_ && static_cast<size_t>(index) >= *size_)) {
      throw std::out_of_range("stoker: the sampler yielded index " + std::to_string(index) +
                              (size_ ? " for a dataset of " + std::to_string(*size_) + " samples"
                                     : ", which is negative"));
    }
  }
  Task task = Task::of(*std::move(batch), position_);
  position_ += task.num_samples;
  return task;
}

void BatchSource::resume(const StateDict& place) {
  place_ = Place::from(place);
  if (skips()) {
    const auto batch_size = static_cast<uint64_t>(options_.batch_size);
    const uint64_t whole = place_.samples() / batch_size;
    sampler_->skip(static_cast<int64_t>(whole));
    position_ = whole * batch_size;
  } else {
    sampler_->skip(place_.batches());
    position_ = place_.samples();
  }
}

StateDict BatchSource::state_dict() const {
  StateDict state;
  if (options_.sampler || options_.batch_sampler) state.insert("sampler", sampler_->state_dict());
  if (!options_.batch_sampler) state.set("batch_size", options_.batch_size);
  if (size_) state.set("dataset_size", static_cast<int64_t>(*size_));
  return state;
}

// Another number of samples, in all or per batch, would make other batches of the rest.
void BatchSource::check(const StateDict& state, const StateDict& place) const {
  const auto require_same = [&](const char* name, int64_t mine) {
    if (!state.contains(name) || state.integer(name) == mine) return;
    throw std::invalid_argument("stoker: the state is one of a loader whose " + std::string(name) +
                                " is " + std::to_string(state.integer(name)) + ", and here it is " +
                                std::to_string(mine));
  };
  if (!options_.batch_sampler) require_same("batch_size", options_.batch_size);
  if (const auto size = dataset_size_()) {
    require_same("dataset_size", static_cast<int64_t>(*size));
  }
  if (!place.empty()) require_sound(Place::from(place));
}

// A place that no epoch of this loader has would be looked for as long as the sampler yields.
void BatchSource::require_sound(const Place& place) const {
  const auto batches = static_cast<uint64_t>(place.batches());
  const auto batch_size = static_cast<uint64_t>(options_.batch_size);
  bool sound = place.samples() >= batches;
  if (!options_.batch_sampler && !skips()) {
    const bool tail = place.samples() % batch_size != 0;
    sound = place.samples() / batch_size + (tail ? 1 : 0) == batches;
  }
  if (!options_.sampler && !options_.batch_sampler && dataset_size_()) {
    sound = sound && place.samples() <= *dataset_size_();
  }
  if (!sound) throw std::invalid_argument("stoker: the state's place in the epoch is damaged");
}

void BatchSource::load_state_dict(const StateDict& state) {
  if (options_.sampler || options_.batch_sampler) {
    sampler_->load_state_dict(state.extract("sampler"));
  }
}

std::optional<int64_t> BatchSource::batches_per_epoch() const {
  return make_sampler(options_.drop_last)->size();
}

}  // namespace stoker::detail
