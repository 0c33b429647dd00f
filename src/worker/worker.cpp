// SPDX-License-Identifier: BSD-3-Clause
#include <c10/util/Type.h>
#include <stoker/worker.h>

#include <utility>

#include "worker/worker_context.h"

namespace stoker {

namespace detail {

std::optional<WorkerInfo>& current_worker_info() {
  static thread_local std::optional<WorkerInfo> info;
  return info;
}

void* AnyDataset::as(const std::type_info& wanted) const {
  if (type != nullptr && *type == wanted) return address;
  throw std::logic_error("stoker: the dataset is asked for as a " + c10::demangle(wanted.name()) +
                         ", and is " +
                         (type == nullptr ? "not there" : "a " + c10::demangle(type->name())));
}

}  // namespace detail

std::optional<WorkerInfo> worker_info() noexcept { return detail::current_worker_info(); }

WorkerError::WorkerError(const std::string& message, Facts facts)
    : std::runtime_error(message), facts_(std::move(facts)) {}

}  // namespace stoker
