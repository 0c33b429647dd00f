// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace stoker {

/// Where a loader, sampler or dataset is, as names and values: integers and texts (of any bytes).
/// Names of parts are joined by dots, as in a module's `state_dict`: `sampler.epoch`. Compare the
/// dictionaries of torchdata's `StatefulDataLoader`.
class StateDict {
 public:
  using Value = std::variant<int64_t, std::string>;

  void set(std::string name, Value value) {
    values_.insert_or_assign(std::move(name), std::move(value));
  }
  bool contains(std::string_view name) const { return values_.find(name) != values_.end(); }

  /// The integer of that name. Throws `std::invalid_argument` if there is none.
  int64_t integer(std::string_view name) const;
  /// The text of that name. Throws `std::invalid_argument` if there is none.
  const std::string& text(std::string_view name) const;

  /// Adds all of `part`, its names led by `prefix` and a dot.
  void insert(std::string_view prefix, const StateDict& part);
  /// What was added with that prefix.
  StateDict extract(std::string_view prefix) const;

  bool empty() const { return values_.empty(); }
  bool operator==(const StateDict&) const = default;

  /// One JSON object; bytes that are no printable ASCII are escaped, so any bytes come back.
  std::string to_json() const;
  /// Throws `std::invalid_argument` for what `to_json` did not write.
  static StateDict from_json(std::string_view json);

  /// Writes it to libtorch's archive, beside a model's parameters: `archive.write("loader", ..)`.
  void save(torch::serialize::OutputArchive& archive) const;
  /// Reads what `save` wrote. Throws `std::invalid_argument` if the archive has no such state, or a
  /// damaged one.
  void load(torch::serialize::InputArchive& archive);

 private:
  std::map<std::string, Value, std::less<>> values_;
};

}  // namespace stoker
