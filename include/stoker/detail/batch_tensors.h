// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stoker/sample.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace stoker::detail {

template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};
template <class T>
concept MapLike = requires {
  typename T::mapped_type;
};
template <class T>
concept SequenceLike = requires(T& value) {
  value.begin();
  value.end();
  value.size();
};
template <class T>
concept HasData = requires(T& value) {
  value.data;
};
template <class T>
concept HasTarget = requires(T& value) {
  value.target;
};
template <class T>
concept HoldsNoTensor =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, std::string>;

/// Finds the tensors of a batch, in the order of its fields; of maps, of their keys.
class BatchTensors {
 public:
  template <class Batch>
  std::vector<at::Tensor*> operator()(Batch& batch) {
    find(batch);
    return std::move(found_);
  }

 private:
  void find(at::Tensor& tensor) { found_.push_back(&tensor); }
  template <class T>
  void find(std::optional<T>& value) {
    if (value) find(*value);
  }
  template <class T>
  void find(T& value) {
    if constexpr (HoldsNoTensor<T>) {
    } else if constexpr (TupleLike<T>) {
      std::apply([this](auto&... parts) { (find(parts), ...); }, value);
    } else if constexpr (MapLike<T>) {
      find_in_map(value);
    } else if constexpr (std::same_as<T, std::vector<bool>>) {
    } else if constexpr (SequenceLike<T>) {
      for (auto& element : value) find(element);
    } else if constexpr (HasFields<T>) {
      find_in_fields(value);
    } else if constexpr (HasData<T>) {  // torch::data::Example
      find(value.data);
      if constexpr (HasTarget<T>) find(value.target);
    } else {
      static_assert(sizeof(T) == 0,
                    "where are the tensors of this type of batch? Specialise "
                    "stoker::SampleTraits for it, with its fields");
    }
  }

  template <class Map>
  void find_in_map(Map& map) {
    std::vector<typename Map::value_type*> entries;
    for (auto& entry : map) entries.push_back(&entry);
    std::ranges::sort(
        entries, {}, [](auto* entry) -> const auto& { return entry->first; });
    for (auto* entry : entries) find(entry->second);
  }

  // `fields` gives references to const into a batch that is none.
  template <class T>
  void find_in_fields(T& value) {
    const typename FieldsOf<T>::type fields = SampleTraits<T>::fields(value);
    std::apply(
        [this](const auto&... parts) {
          (find(const_cast<std::remove_cvref_t<decltype(parts)>&>(parts)), ...);
        },
        fields);
  }

  std::vector<at::Tensor*> found_;
};

}  // namespace stoker::detail
