// SPDX-License-Identifier: BSD-3-Clause
#include "memory/failure.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <cxxabi.h>
#include <stoker/detail/flat_sample.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <string_view>
#include <typeinfo>

namespace stoker::detail {

namespace {

constexpr int64_t kAbsent = -1;

struct Stored {
  int64_t worker_id;
  int64_t pid;
  int64_t index;
  uint32_t type_bytes;
  uint32_t text_bytes;
};

// Of a failure that the open end has no room for: room for those of hundreds of workers at once.
constexpr uint64_t kShort = 512;

// As many causes of an exception are told.
constexpr int kMostCauses = 8;

template <class T>
std::optional<T> present(int64_t value) {
  if (value == kAbsent) return std::nullopt;
  return static_cast<T>(value);
}

// std::throw_with_nested throws a type of libstdc++'s, derived from the one that it was given,
// which is what is named.
std::string name_of(const std::type_info& type) {
  constexpr std::string_view kNested = "std::_Nested_exception<";
  constexpr std::string_view kConst = " const";
  std::string name = c10::demangle(type.name());
  if (!name.starts_with(kNested)) return name;
  name = name.substr(kNested.size(), name.rfind('>') - kNested.size());
  if (name.ends_with(' ')) name.pop_back();  // "A<B> >"
  if (name.ends_with(kConst)) name.resize(name.size() - kConst.size());
  return name;
}

// Type and text of this exception alone.
Failure describe_one(const std::exception_ptr& error) {
  Failure failure;
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& e) {
    failure.type_name = "c10::Error";
    failure.text = e.what_without_backtrace();
  } catch (const std::exception& e) {
    failure.type_name = name_of(typeid(e));
    failure.text = e.what();
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    failure.type_name = type == nullptr ? "unknown" : name_of(*type);
    failure.text = "an exception that is not a std::exception";
  }
  return failure;
}

// The exception that was being handled when this one was thrown; null if it does not say.
std::exception_ptr cause_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::nested_exception& e) {
    return e.nested_ptr();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

Failure describe_exception(const std::exception_ptr& error) {
  Failure failure = describe_one(error);
  std::exception_ptr cause = cause_of(error);
  for (int told = 0; cause != nullptr && told < kMostCauses; ++told) {
    const Failure behind = describe_one(cause);
    failure.text += "; caused by " + behind.type_name + ": " + behind.text;
    cause = cause_of(cause);
  }
  return failure;
}

uint64_t store_failure(Slot slot, const Failure& failure) {
  Stored stored{failure.worker_id.value_or(kAbsent), failure.pid,
                failure.index ? static_cast<int64_t>(*failure.index) : kAbsent,
                static_cast<uint32_t>(failure.type_name.size()),
                static_cast<uint32_t>(failure.text.size())};
  auto place = slot.allocate(sizeof stored + stored.type_bytes + stored.text_bytes);
  if (!place) {
    // More failures than that, in a slot that is full: the last place tells of one of them.
    place = slot.allocate_for_failure(kShort).value_or(slot.bytes() - kShort);
    constexpr auto kRoom = static_cast<uint32_t>(kShort - sizeof stored);
    stored.type_bytes = std::min(stored.type_bytes, kRoom / 4);
    stored.text_bytes = std::min(stored.text_bytes, kRoom - stored.type_bytes);
  }
  std::byte* out = slot.at(*place);
  std::memcpy(out, &stored, sizeof stored);
  std::memcpy(out + sizeof stored, failure.type_name.data(), stored.type_bytes);
  std::memcpy(out + sizeof stored + stored.type_bytes, failure.text.data(), stored.text_bytes);
  return *place;
}

Failure load_failure(Slot slot, uint64_t offset) {
  Stored stored;
  if (!slot.is_given_out(offset, sizeof stored)) throw_damaged("the error");
  std::memcpy(&stored, slot.at(offset), sizeof stored);
  const uint64_t bytes = sizeof stored + uint64_t{stored.type_bytes} + stored.text_bytes;
  if (!slot.is_given_out(offset, bytes)) throw_damaged("the error");
  const auto* text = reinterpret_cast<const char*>(slot.at(offset)) + sizeof stored;
  Failure failure;
  failure.worker_id = present<int64_t>(stored.worker_id);
  failure.pid = stored.pid;
  failure.index = present<size_t>(stored.index);
  failure.type_name.assign(text, stored.type_bytes);
  failure.text.assign(text + stored.type_bytes, stored.text_bytes);
  return failure;
}

std::string megabytes(uint64_t bytes) {
  std::ostringstream text;
  const bool many = bytes >= uint64_t{1000} << 20;
  const bool very_many = bytes >= uint64_t{1000} << 30;
  const int shift = very_many ? 40 : many ? 30 : 20;
  text << std::setprecision(many ? 4 : 3) << std::ldexp(static_cast<double>(bytes), -shift)
       << (very_many ? " TB"
           : many    ? " GB"
                     : " MB");
  return text.str();
}

std::string describe_too_large(Slot slot, std::optional<uint64_t> bytes) {
  return "a batch of " + std::to_string(slot.num_samples()) + " such samples takes " +
         (bytes ? megabytes(*bytes) : "more than there is") + ", and it may take " +
         megabytes(std::min(slot.rows_capacity(), slot.open_capacity())) +
         " of shared memory; use a smaller batch_size or prefetch_factor, or raise "
         "shared_memory_limit";
}

}  // namespace stoker::detail
