// SPDX-License-Identifier: BSD-3-Clause
#include "batch_source.h"

#include <stdexcept>
#include <string>
#include <utility>

namespace stoker::detail {

BatchSource::BatchSource(const DataLoaderOptions& options, DatasetSize dataset_size)
    : options_(options),
      dataset_size_(std::move(dataset_size)),
      size_(dataset_size_()),
      sampler_(make_sampler()) {}

int64_t BatchSource::known_size() const {
  const auto size = dataset_size_();
  if (!size) {
    throw std::invalid_argument(
        "stoker: the dataset has no size; give a sampler or a batch_sampler, or let size() return "
        "how many samples there are");
  }
  return static_cast<int64_t>(*size);
}

std::shared_ptr<Sampler<std::vector<int64_t>>> BatchSource::make_sampler() const {
  if (options_.batch_sampler) return options_.batch_sampler;
  std::shared_ptr<Sampler<int64_t>> sampler = options_.sampler;
  if (!sampler && options_.shuffle) {
    sampler = std::make_shared<RandomSampler>(known_size(), options_.generator);
  } else if (!sampler) {
    sampler = std::make_shared<SequentialSampler>(known_size());
  }
  return std::make_shared<BatchSampler>(sampler, options_.batch_size, options_.drop_last);
}

void BatchSource::reset() {
  if (const auto size = dataset_size_(); size != size_) {  // it may have grown
    size_ = size;
    sampler_ = make_sampler();
  }
  sampler_->reset();
  rest_.reset();
  place_ = {};
  position_ = 0;
}

std::optional<Task> BatchSource::next() {
  auto task = draw();
  while (task && place_.was_delivered(task->position)) task = draw();
  return task;
}

std::optional<Task> BatchSource::draw() {
  if (!rest_) return draw_from_sampler();
  const auto full = static_cast<size_t>(options_.batch_size);
  if (rest_->empty() || (options_.drop_last && rest_->front().indices.size() < full)) {
    return std::nullopt;
  }
  Task task = std::move(rest_->front());
  rest_->pop_front();
  return task;
}

std::optional<int64_t> BatchSource::take_last() {
  if (!rest_) {
    std::deque<Task> rest;
    while (auto task = draw_from_sampler()) rest.push_back(*std::move(task));
    rest_ = std::move(rest);
  }
  if (rest_->empty()) return std::nullopt;
  std::vector<int64_t>& last = rest_->back().indices;
  const int64_t index = last.back();
  last.pop_back();
  if (last.empty()) rest_->pop_back();
  return index;
}

std::optional<Task> BatchSource::draw_from_sampler() {
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
  Task task{*std::move(batch), position_};
  position_ += task.indices.size();
  return task;
}

void BatchSource::resume(const StateDict& place) {
  place_ = Place::from(place);
  sampler_->skip(place_.batches());
  position_ = place_.samples();
}

StateDict BatchSource::state_dict() const {
  StateDict state;
  if (options_.sampler || options_.batch_sampler) state.insert("sampler", sampler_->state_dict());
  if (!options_.batch_sampler) state.set("batch_size", options_.batch_size);
  if (size_) state.set("dataset_size", static_cast<int64_t>(*size_));
  return state;
}

// Another number of samples, in all or per batch, would make other batches of the rest.
void BatchSource::load_state_dict(const StateDict& state) {
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
  if (options_.sampler || options_.batch_sampler) {
    sampler_->load_state_dict(state.extract("sampler"));
  }
}

std::optional<int64_t> BatchSource::batches_per_epoch() const { return make_sampler()->size(); }

}  // namespace stoker::detail
