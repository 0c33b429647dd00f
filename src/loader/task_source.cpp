// SPDX-License-Identifier: BSD-3-Clause
#include "loader/task_source.h"

#include <utility>

namespace stoker::detail {

Task Task::of(std::vector<int64_t> indices, uint64_t position) {
  Task task;
  task.num_samples = indices.size();
  task.indices = std::move(indices);
  task.position = position;
  return task;
}

void TaskSource::reset() {
  given_back_.clear();
  error_ = nullptr;
  begin();
}

std::optional<Task> TaskSource::take() {
  if (!given_back_.empty()) {
    Task task = std::move(given_back_.front());
    given_back_.pop_front();
    return task;
  }
  if (error_) std::rethrow_exception(error_);
  try {
    return draw();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

}  // namespace stoker::detail
