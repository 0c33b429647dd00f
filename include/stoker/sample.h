// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/detail/codec.h>
#include <stoker/detail/require_sample.h>

#include <cstddef>
#include <tuple>
#include <utility>

namespace stoker {

/// How a struct of your own is a sample. Specialise it with its fields, in order:
///
///     struct Face { torch::Tensor image; int64_t person; };
///     struct Faces { torch::Tensor image, person; };
///
///     template <> struct stoker::SampleTraits<Face> {
///       using batch_type = Faces;                                  // may be left out
///       static constexpr std::array names = {"image", "person"};   // may be left out
///       static auto fields(const Face& face) { return std::tie(face.image, face.person); }
///     };
///
/// `batch_type` is brace-initialised from the collated fields, in order; it defaults to a
/// `std::tuple` of them. `names` are what error messages call the fields. `fields` must return
/// references to the sample's own fields (`std::tie`; values do not compile). Where a single T is
/// to be put together (a `collate_fn` takes or returns it, or there is no batching), it is
/// brace-initialised from its fields, in order.
template <class T>
struct SampleTraits {};

namespace detail {

// Of fields that cannot travel, which Require has told.
template <class Fields>
struct FieldsBatch {
  using type = std::tuple<>;
};
template <Collatable... Fields>
struct FieldsBatch<std::tuple<Fields...>> {
  using type = std::tuple<batch_t<Fields>...>;
  template <class Batch>
  static Batch gather(BatchLeaves& leaves) {
    return gather_fields<Batch, Fields...>(leaves);
  }
  template <class T>
  static T take(BatchLeaves& leaves) {
    return take_fields<T, Fields...>(leaves);
  }
};
template <class T, class Default>
struct BatchTypeOf {
  using type = Default;
};
template <class T, class Default>
requires requires { typename SampleTraits<T>::batch_type; }
struct BatchTypeOf<T, Default> {
  using type = typename SampleTraits<T>::batch_type;
};

template <HasFields T>
struct Codec<T> {
  using Fields = typename FieldsOf<T>::type;
  static_assert(Require<Fields, WholeSample>::value);
  using batch_type = typename BatchTypeOf<T, typename FieldsBatch<Fields>::type>::type;

  template <class Sink>
  static void flatten(const T& value, Sink& sink) {
    const Fields fields = SampleTraits<T>::fields(value);
    [&]<size_t... I>(std::index_sequence<I...>) {
      (flatten_field<I>(std::get<I>(fields), sink), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<Fields>>{});
  }
  static batch_type gather(BatchLeaves& leaves) {
    return FieldsBatch<Fields>::template gather<batch_type>(leaves);
  }
  static T take(BatchLeaves& leaves) { return FieldsBatch<Fields>::template take<T>(leaves); }

 private:
  template <size_t I, class Field, class Sink>
  static void flatten_field(const Field& field, Sink& sink) {
    if constexpr (requires { SampleTraits<T>::names; }) {
      flatten_named(SampleTraits<T>::names[I], field, sink);
    } else {
      flatten_at(I, field, sink);
    }
  }
};

}  // namespace detail

/// A type that can be a sample: a tensor, a number, bool or enum, a string, or a pair, tuple,
/// array, vector, map or `torch::data::Example` of samples, or a struct with SampleTraits.
template <class T>
concept SampleType = detail::Collatable<T>;

/// What a batch of samples of type T is; the rules are those of Python's `default_collate`.
/// Tensors of shape `[...]` become one of shape `[n, ...]`, numbers one of shape `[n]` with the
/// dtype of their C++ type, strings a `std::vector<std::string>`; containers are collated field by
/// field.
template <SampleType T>
using BatchOf = detail::batch_t<T>;

}  // namespace stoker
