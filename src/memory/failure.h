// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// An exception on its way from a worker to the main process, as bytes in a slot's open end.

#include <exception>
#include <optional>
#include <string>

#include "memory/slot.h"

namespace stoker::detail {

struct Failure {
  std::optional<int64_t> worker_id;  // absent when the calling process did the work
  int64_t pid = 0;
  std::optional<size_t> index;  // absent if it is about the batch as a whole
  std::string type_name;        // demangled; empty for our own findings, as in collation
  std::string text;
};

// Type and text of any exception, `throw 42` included; behind its text those of what caused it, as
// std::nested_exception tells.
Failure describe_exception(const std::exception_ptr& error);

// The offset of the failure in the slot. Where the open end is full, the text is cut to what fits
// the places that every slot keeps free.
uint64_t store_failure(Slot slot, const Failure& failure);
// Throws std::runtime_error if what lies there is damaged.
Failure load_failure(Slot slot, uint64_t offset);

// "1.5 MB", "12 GB", "7.276 TB".
std::string megabytes(uint64_t bytes);
// That a batch of such samples, of that many bytes if they can be counted, does not fit its slot.
std::string describe_too_large(Slot slot, std::optional<uint64_t> bytes);

}  // namespace stoker::detail
