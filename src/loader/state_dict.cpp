// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/core/ivalue.h>
#include <stoker/state_dict.h>
#include <torch/csrc/api/include/torch/serialize/archive.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace stoker {

namespace {

using Json = nlohmann::json;

constexpr const char* kArchiveKey = "stoker_state";

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("stoker: " + what);
}

template <class T>
const T& value(const std::map<std::string, StateDict::Value, std::less<>>& values,
               std::string_view name, const char* kind) {
  const auto found = values.find(name);
  if (found == values.end()) refuse("the state has no '" + std::string(name) + "'");
  const T* const held = std::get_if<T>(&found->second);
  if (held == nullptr) refuse("'" + std::string(name) + "' of the state is not " + kind);
  return *held;
}

// JSON's texts are Unicode: each byte becomes the character of the same number, and back.
std::string to_utf8(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xc0 | byte >> 6);
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return text;
}

std::string from_utf8(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      bytes += text[i];
    } else if ((lead == 0xc2 || lead == 0xc3) && i + 1 < text.size()) {
      bytes += static_cast<char>((lead & 0x03) << 6 | (text[++i] & 0x3f));
    } else {
      refuse("the state's JSON has a text that this library did not write");
    }
  }
  return bytes;
}

StateDict::Value read_value(const std::string& name, const Json& value) {
  if (value.is_string()) return from_utf8(value.get_ref<const std::string&>());
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  if (!fits) refuse("'" + name + "' of the state's JSON is no integer of 64 bits, and no text");
  return value.get<int64_t>();
}

}  // namespace

int64_t StateDict::integer(std::string_view name) const {
  return value<int64_t>(values_, name, "an integer");
}

const std::string& StateDict::text(std::string_view name) const {
  return value<std::string>(values_, name, "a text");
}

void StateDict::insert(std::string_view prefix, const StateDict& part) {
  for (const auto& [name, value] : part.values_) set(std::string(prefix) + "." + name, value);
}

StateDict StateDict::extract(std::string_view prefix) const {
  const std::string start = std::string(prefix) + ".";
  StateDict part;
  for (auto at = values_.lower_bound(start); at != values_.end(); ++at) {
    if (!at->first.starts_with(start)) break;
    part.set(at->first.substr(start.size()), at->second);
  }
  return part;
}

std::string StateDict::to_json() const {
  Json json = Json::object();
  for (const auto& [name, value] : values_) {
    if (const auto* const text = std::get_if<std::string>(&value)) {
      json[to_utf8(name)] = to_utf8(*text);
    } else {
      json[to_utf8(name)] = std::get<int64_t>(value);
    }
  }
  return json.dump(-1, ' ', true);
}

StateDict StateDict::from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) refuse("the state's JSON is damaged: it is no object");
  StateDict state;
  for (const auto& [name, value] : json.items())
    state.set(from_utf8(name), read_value(name, value));
  return state;
}

void StateDict::save(torch::serialize::OutputArchive& archive) const {
  archive.write(kArchiveKey, c10::IValue(to_json()));
}

void StateDict::load(torch::serialize::InputArchive& archive) {
  c10::IValue json;
  if (!archive.try_read(kArchiveKey, json) || !json.isString()) {
    refuse("the archive has no loader's state here");
  }
  *this = from_json(json.toStringRef());
}

}  // namespace stoker
