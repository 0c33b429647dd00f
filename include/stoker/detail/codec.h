// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <stoker/detail/flat_sample.h>

#include <algorithm>
#include <array>
#include <complex>
#include <concepts>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

// Declared, not included: torch/data.h would cost every user of this header ten seconds.
namespace torch::data {
template <typename Data, typename Target>
struct Example;
}

namespace stoker::detail {

// Codec<T> says how a T is taken apart (flatten) and put together again (take), and what a batch of
// T's is (batch_type, gather). The rules are those of Python's `default_collate`. An incomplete
// Codec<T>: T cannot be a sample.
template <class T>
struct Codec;

template <class T>
concept Collatable = requires {
  typename Codec<std::remove_cvref_t<T>>::batch_type;
};

template <class T>
constexpr at::ScalarType scalar_type_of() {
  using enum at::ScalarType;
  if constexpr (std::is_void_v<T>) {
    return Undefined;
  } else if constexpr (std::is_enum_v<T>) {
    return scalar_type_of<std::underlying_type_t<T>>();
  } else if constexpr (std::is_same_v<T, bool>) {
    return Bool;
  } else if constexpr (std::is_integral_v<T> && sizeof(T) <= 8) {
    constexpr std::array kSigned = {Char, Short, Int, Long};
    constexpr std::array kUnsigned = {Byte, UInt16, UInt32, UInt64};
    constexpr size_t log2 = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? kSigned[log2] : kUnsigned[log2];
  } else if constexpr (std::is_same_v<T, float>) {
    return Float;
  } else if constexpr (std::is_same_v<T, double>) {
    return Double;
  } else if constexpr (std::is_same_v<T, at::Half>) {
    return Half;
  } else if constexpr (std::is_same_v<T, at::BFloat16>) {
    return BFloat16;
  } else if constexpr (std::is_same_v<T, c10::complex<float>> ||
                       std::is_same_v<T, std::complex<float>>) {
    return ComplexFloat;
  } else if constexpr (std::is_same_v<T, c10::complex<double>> ||
                       std::is_same_v<T, std::complex<double>>) {
    return ComplexDouble;
  } else {
    return Undefined;
  }
}

template <class T>
concept Number = scalar_type_of<T>()
!= at::ScalarType::Undefined;

// A tensor: stacked along a new first dimension.
template <>
struct Codec<at::Tensor> {
  using batch_type = at::Tensor;
  template <class Sink>
  static void flatten(const at::Tensor& value, Sink& sink) {
    sink.tensor(value);
  }
  static batch_type gather(BatchLeaves& leaves) { return leaves.take_tensor(); }
  static at::Tensor take(BatchLeaves& leaves) { return leaves.take_tensor(); }
};

// A number, bool or enum: a tensor [n] of its dtype.
template <Number T>
struct Codec<T> {
  using batch_type = at::Tensor;
  template <class Sink>
  static void flatten(const T& value, Sink& sink) {
    sink.number(scalar_type_of<T>(), &value, sizeof value);
  }
  static batch_type gather(BatchLeaves& leaves) { return leaves.take_tensor(); }
  static T take(BatchLeaves& leaves) {
    T value{};
    leaves.take_number(&value, sizeof value);
    return value;
  }
};

// A string: a vector of strings.
template <>
struct Codec<std::string> {
  using batch_type = std::vector<std::string>;
  template <class Sink>
  static void flatten(const std::string& value, Sink& sink) {
    sink.string(value);
  }
  static batch_type gather(BatchLeaves& leaves) { return leaves.take_strings(); }
  static std::string take(BatchLeaves& leaves) { return leaves.take_strings().at(0); }
};

template <class T>
using batch_t = typename Codec<std::remove_cvref_t<T>>::batch_type;

// Walks one element of a container, which the sink may want to name.
template <class T, class Sink>
void flatten_at(size_t index, const T& value, Sink& sink) {
  sink.enter_index(index);
  Codec<std::remove_cvref_t<T>>::flatten(value, sink);
  sink.leave();
}
template <class T, class Sink>
void flatten_named(std::string_view name, const T& value, Sink& sink) {
  sink.enter_name(name);
  Codec<std::remove_cvref_t<T>>::flatten(value, sink);
  sink.leave();
}

// Braces evaluate from left to right, which is the order the leaves come in.
template <class Batch, class... Fields>
Batch gather_fields(BatchLeaves& leaves) {
  return Batch{Codec<std::remove_cvref_t<Fields>>::gather(leaves)...};
}
template <class T, class... Fields>
T take_fields(BatchLeaves& leaves) {
  return T{Codec<std::remove_cvref_t<Fields>>::take(leaves)...};
}

template <Collatable... Ts>
struct Codec<std::tuple<Ts...>> {
  using batch_type = std::tuple<batch_t<Ts>...>;
  template <class Sink>
  static void flatten(const std::tuple<Ts...>& value, Sink& sink) {
    [&]<size_t... I>(std::index_sequence<I...>) { (flatten_at(I, std::get<I>(value), sink), ...); }
    (std::index_sequence_for<Ts...>{});
  }
  static batch_type gather(BatchLeaves& leaves) { return gather_fields<batch_type, Ts...>(leaves); }
  static std::tuple<Ts...> take(BatchLeaves& leaves) {
    return take_fields<std::tuple<Ts...>, Ts...>(leaves);
  }
};

template <Collatable First, Collatable Second>
struct Codec<std::pair<First, Second>> {
  using batch_type = std::pair<batch_t<First>, batch_t<Second>>;
  template <class Sink>
  static void flatten(const std::pair<First, Second>& value, Sink& sink) {
    flatten_at(0, value.first, sink);
    flatten_at(1, value.second, sink);
  }
  static batch_type gather(BatchLeaves& leaves) {
    return gather_fields<batch_type, First, Second>(leaves);
  }
  static std::pair<First, Second> take(BatchLeaves& leaves) {
    return take_fields<std::pair<First, Second>, First, Second>(leaves);
  }
};

template <Collatable T, size_t N>
struct Codec<std::array<T, N>> {
  using batch_type = std::array<batch_t<T>, N>;
  template <class Sink>
  static void flatten(const std::array<T, N>& value, Sink& sink) {
    for (size_t i = 0; i < N; ++i) flatten_at(i, value[i], sink);
  }
  static batch_type gather(BatchLeaves& leaves) {
    batch_type batch;
    for (auto& element : batch) element = Codec<T>::gather(leaves);
    return batch;
  }
  static std::array<T, N> take(BatchLeaves& leaves) {
    std::array<T, N> value;
    for (T& element : value) element = Codec<T>::take(leaves);
    return value;
  }
};

// A vector: element by element, so its length must be the same in all samples of a batch.
template <Collatable T>
struct Codec<std::vector<T>> {
  using batch_type = std::vector<batch_t<T>>;
  template <class Sink>
  static void flatten(const std::vector<T>& value, Sink& sink) {
    sink.length(value.size());
    for (size_t i = 0; i < value.size(); ++i) {
      const T& element = value[i];  // of vector<bool>: a copy
      flatten_at(i, element, sink);
    }
  }
  static batch_type gather(BatchLeaves& leaves) {
    const uint64_t length = leaves.take_length();
    batch_type batch;
    batch.reserve(leaves.at_most(length));
    for (uint64_t i = 0; i < length; ++i) batch.push_back(Codec<T>::gather(leaves));
    return batch;
  }
  static std::vector<T> take(BatchLeaves& leaves) {
    std::vector<T> value;
    for (uint64_t left = leaves.take_length(); left > 0; --left) {
      value.push_back(Codec<T>::take(leaves));
    }
    return value;
  }
};

template <class K>
concept MapKey = std::same_as<K, std::string> || std::integral<K> || std::is_enum_v<K>;

template <MapKey K>
std::string encode_key(const K& key) {
  if constexpr (std::same_as<K, std::string>) {
    return key;
  } else {
    return std::string(reinterpret_cast<const char*>(&key), sizeof key);
  }
}
template <MapKey K>
K decode_key(std::string bytes) {
  if constexpr (std::same_as<K, std::string>) {
    return bytes;
  } else {
    K key;
    if (bytes.size() != sizeof key) throw_damaged("the structure");
    std::memcpy(&key, bytes.data(), sizeof key);
    return key;
  }
}
template <MapKey K>
std::string key_text(const K& key) {
  if constexpr (std::same_as<K, std::string>) {
    return key;
  } else {
    return std::to_string(static_cast<long long>(key));
  }
}

// Maps: key by key, in the order of the keys; all samples of a batch must have the same ones.
template <class Map, template <class...> class Template>
struct MapCodec {
  using Key = typename Map::key_type;
  using Value = typename Map::mapped_type;
  using batch_type = Template<Key, batch_t<Value>>;

  template <class Sink>
  static void flatten(const Map& value, Sink& sink) {
    sink.length(value.size());
    std::vector<const typename Map::value_type*> entries;
    for (const auto& entry : value) entries.push_back(&entry);
    std::ranges::sort(entries, {}, [](auto* entry) -> const Key& { return entry->first; });
    for (const auto* entry : entries) {
      sink.key(encode_key(entry->first));
      sink.enter_key(key_text(entry->first));
      Codec<Value>::flatten(entry->second, sink);
      sink.leave();
    }
  }
  static batch_type gather(BatchLeaves& leaves) {
    batch_type batch;
    for (uint64_t left = leaves.take_length(); left > 0; --left) {
      Key key = decode_key<Key>(leaves.take_key());
      batch.emplace(std::move(key), Codec<Value>::gather(leaves));
    }
    return batch;
  }
  static Map take(BatchLeaves& leaves) {
    Map value;
    for (uint64_t left = leaves.take_length(); left > 0; --left) {
      Key key = decode_key<Key>(leaves.take_key());
      value.emplace(std::move(key), Codec<Value>::take(leaves));
    }
    return value;
  }
};
template <MapKey K, Collatable V>
struct Codec<std::map<K, V>> : MapCodec<std::map<K, V>, std::map> {};
template <MapKey K, Collatable V>
struct Codec<std::unordered_map<K, V>> : MapCodec<std::unordered_map<K, V>, std::unordered_map> {};

template <Collatable Data, Collatable Target>
struct Codec<torch::data::Example<Data, Target>> {
  using batch_type = torch::data::Example<batch_t<Data>, batch_t<Target>>;
  template <class Sink>
  static void flatten(const torch::data::Example<Data, Target>& value, Sink& sink) {
    flatten_named("data", value.data, sink);
    flatten_named("target", value.target, sink);
  }
  static batch_type gather(BatchLeaves& leaves) {
    return gather_fields<batch_type, Data, Target>(leaves);
  }
  static auto take(BatchLeaves& leaves) {
    return take_fields<torch::data::Example<Data, Target>, Data, Target>(leaves);
  }
};
template <Collatable Data>
struct Codec<torch::data::Example<Data, void>> {
  using batch_type = torch::data::Example<batch_t<Data>, void>;
  template <class Sink>
  static void flatten(const torch::data::Example<Data, void>& value, Sink& sink) {
    flatten_named("data", value.data, sink);
  }
  static batch_type gather(BatchLeaves& leaves) { return gather_fields<batch_type, Data>(leaves); }
  static auto take(BatchLeaves& leaves) {
    return take_fields<torch::data::Example<Data, void>, Data>(leaves);
  }
};

}  // namespace stoker::detail
