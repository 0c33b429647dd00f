// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Says of a type that is no sample which of its fields cannot travel, and what to do.

#include <stoker/detail/codec.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace stoker {

template <class T>
struct SampleTraits;

namespace detail {

// The user's own struct, through SampleTraits.
template <class T>
concept HasFields = requires(const T& value) {
  SampleTraits<T>::fields(value);
};

template <class Fields>
constexpr bool kAreReferences = false;
template <class... Fields>
constexpr bool kAreReferences<std::tuple<Fields...>> = (std::is_lvalue_reference_v<Fields> && ...);

// What SampleTraits<T>::fields returns.
template <HasFields T>
struct FieldsOf {
  using type = decltype(SampleTraits<T>::fields(std::declval<const T&>()));
  // A value would be gone before its bytes are read.
  static_assert(kAreReferences<type>,
                "stoker: SampleTraits::fields must return references to the sample's fields: use "
                "std::tie (or std::forward_as_tuple), not std::make_tuple");
};

// Where a field is: what the compiler's notes show behind its type.
struct WholeSample;
struct Element;
struct MapKeyOf;
struct MapValue;
template <size_t Index>
struct Field;

template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;

// To instantiate it is an error if a T in this place cannot travel.
template <class T, class Place>
struct Require {
  static constexpr bool kIsPointer = std::is_pointer_v<T>;
  static_assert(!kIsPointer,
                "stoker: a pointer cannot be a field of a sample, which goes to another process: "
                "return what it points to (text as std::string). The field is the T and Place of "
                "the notes");
  static_assert(!kIsOptional<T>,
                "stoker: std::optional cannot be a field of a sample, since a batch has one for "
                "each: use a value that means none (-1, NaN), or add a bool. The field is the T "
                "and Place of the notes");
  static_assert(kIsPointer || kIsOptional<T> || Collatable<T>,
                "stoker: this type cannot be a field of a sample: use tensors, numbers, bools, "
                "enums, std::string, and pairs, tuples, arrays, vectors and maps of them; for a "
                "struct of your own, specialise stoker::SampleTraits before the loader. The field "
                "is the T and Place of the notes");
  static constexpr bool value = true;
};

template <class T, class Place>
struct RequireKey {
  static_assert(MapKey<T>,
                "stoker: the keys of a sample's map must be std::string, integers or enums");
  static constexpr bool value = true;
};

template <class Places, class... Fields>
struct RequireEach;
template <size_t... I, class... Fields>
struct RequireEach<std::index_sequence<I...>, Fields...> {
  static constexpr bool value = (Require<std::remove_cvref_t<Fields>, Field<I>>::value && ...);
};
template <class... Fields>
using RequireFields = RequireEach<std::index_sequence_for<Fields...>, Fields...>;

template <class... Fields, class Place>
struct Require<std::tuple<Fields...>, Place> : RequireFields<Fields...> {};
template <class First, class Second, class Place>
struct Require<std::pair<First, Second>, Place> : RequireFields<First, Second> {};
template <class Data, class Target, class Place>
struct Require<torch::data::Example<Data, Target>, Place> : RequireFields<Data, Target> {};
template <class Data, class Place>
struct Require<torch::data::Example<Data, void>, Place> : RequireFields<Data> {};
template <class T, size_t N, class Place>
struct Require<std::array<T, N>, Place> : Require<T, Element> {};
template <class T, class Place>
struct Require<std::vector<T>, Place> : Require<T, Element> {};
template <class K, class V, class Place>
struct Require<std::map<K, V>, Place> {
  static constexpr bool value = RequireKey<K, MapKeyOf>::value && Require<V, MapValue>::value;
};
template <class K, class V, class Place>
struct Require<std::unordered_map<K, V>, Place> : Require<std::map<K, V>, Place> {};

}  // namespace detail
}  // namespace stoker
