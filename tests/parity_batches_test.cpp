// SPDX-License-Identifier: BSD-3-Clause

// Batches are those that Python's default_collate makes of the same samples
// (parity/make_golden.py): types, shapes and values.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "datasets.h"
#include "parity.h"

namespace stoker {

// `{"image": .., "label": .., "boxes": [..]}`, whose values are of several types, is a struct here.
struct Annotated {
  at::Tensor image;
  int64_t label;
  std::vector<at::Tensor> boxes;
};
template <>
struct SampleTraits<Annotated> {
  static auto fields(const Annotated& a) { return std::tie(a.image, a.label, a.boxes); }
};
struct Pairs {
  std::pair<std::string, int64_t> a;
  std::pair<bool, at::Tensor> b;
};
template <>
struct SampleTraits<Pairs> {
  static auto fields(const Pairs& pairs) { return std::tie(pairs.a, pairs.b); }
};

namespace {

using at::Tensor;

Json told(const Tensor& batch) {
  static const std::map<at::ScalarType, std::string> names = {
      {at::kByte, "uint8"},
      {at::kChar, "int8"},
      {at::kShort, "int16"},
      {at::kInt, "int32"},
      {at::kLong, "int64"},
      {at::kHalf, "float16"},
      {at::kBFloat16, "bfloat16"},
      {at::kFloat, "float32"},
      {at::kDouble, "float64"},
      {at::kBool, "bool"},
      {at::kComplexFloat, "complex64"},
      {at::kComplexDouble, "complex128"},
  };
  const Tensor real = batch.is_complex() ? at::view_as_real(batch) : batch;
  const Tensor flat = real.contiguous().flatten();
  Json values = Json::array();
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (flat.scalar_type() == at::kBool) {
      values.push_back(flat[i].item<bool>());
    } else if (flat.is_floating_point()) {
      values.push_back(flat[i].item<double>());
    } else {
      values.push_back(flat[i].item<int64_t>());
    }
  }
  return {
      {"dtype", names.at(batch.scalar_type())}, {"shape", batch.sizes().vec()}, {"values", values}};
}
Json told(const std::string& text) { return text; }
template <class T>
Json told(const std::vector<T>& elements);
template <class... Ts>
Json told(const std::tuple<Ts...>& elements);
template <class First, class Second>
Json told(const std::pair<First, Second>& elements) {
  return Json::array({told(elements.first), told(elements.second)});
}
template <class T>
Json told(const std::vector<T>& elements) {
  Json all = Json::array();
  for (const T& element : elements) all.push_back(told(element));
  return all;
}
template <class... Ts>
Json told(const std::tuple<Ts...>& elements) {
  return std::apply([](const auto&... each) { return Json::array({told(each)...}); }, elements);
}

// What a dictionary's batch is in Python, of a struct's here.
Json under_names(const std::vector<std::string>& names, const Json& fields) {
  Json map;
  for (size_t i = 0; i < names.size(); ++i) map[names[i]] = fields[i];
  return map;
}

Tensor pair_of(double first, double second, at::ScalarType dtype) {
  return at::tensor({first, second}, at::kDouble).to(dtype);
}
int64_t whole(size_t i) { return static_cast<int64_t>(i); }
double real(size_t i) { return static_cast<double>(i); }

// The batches of five such samples, two by two.
template <class Make>
std::vector<Json> batches_of_kind(Make make, int64_t num_workers) {
  std::vector<Json> all;
  DataLoader loader(Made{5, make}, {.batch_size = 2, .num_workers = num_workers});
  for (auto& batch : loader) all.push_back(told(batch));
  return all;
}

using Kind = std::function<std::vector<Json>(int64_t num_workers)>;
template <class Make>
Kind kind(Make make) {
  return [make](int64_t num_workers) { return batches_of_kind(make, num_workers); };
}
Kind kind_of(at::ScalarType dtype, double first, double second) {
  return kind([=](size_t i) { return pair_of(first * real(i), second * real(i), dtype); });
}

// KINDS of make_golden.py.
std::map<std::string, Kind> kinds() {
  std::map<std::string, Kind> all;
  all["int"] = kind([](size_t i) { return 3 * whole(i) - 4; });
  all["float"] = kind([](size_t i) { return real(i) / 8 - 1; });
  all["bool"] = kind([](size_t i) { return i % 3 == 0; });
  all["string"] = kind([](size_t i) { return std::string(i, 's'); });
  all["tuple"] = kind([](size_t i) {
    return std::tuple(at::arange(6).view({2, 3}) / 4 + whole(i), whole(i),
                      "name " + std::to_string(i));
  });
  all["dict"] = [](int64_t num_workers) {
    const auto make = [](size_t i) {
      return Annotated{
          at::full({2, 2}, 50 * whole(i), at::kByte),
          whole(i) - 2,
          {at::full({4}, real(i) / 2, at::kHalf), at::tensor({whole(i), -whole(i)}, at::kInt)}};
    };
    auto all_of = batches_of_kind(make, num_workers);
    for (Json& batch : all_of) batch = under_names({"image", "label", "boxes"}, batch);
    return all_of;
  };
  all["nested"] = [](int64_t num_workers) {
    const auto make = [](size_t i) {
      return std::pair(std::pair(whole(i), real(i) / 4),
                       Pairs{{std::to_string(i), whole(i)},
                             {i > 2, at::scalar_tensor(real(i) * 1.5, at::kFloat)}});
    };
    auto all_of = batches_of_kind(make, num_workers);
    for (Json& batch : all_of) batch[1] = under_names({"a", "b"}, batch[1]);
    return all_of;
  };
  all["scalars"] = kind([](size_t i) {
    return std::pair(at::scalar_tensor(whole(i), at::kLong), at::scalar_tensor(i > 1, at::kBool));
  });
  all["empty"] = kind([](size_t) { return at::zeros({2, 0}); });
  all["transposed"] = kind([](size_t i) {
    return (at::arange(6).view({2, 3}) + 10 * whole(i)).t();
  });
  all["uint8"] = kind([](size_t i) { return pair_of(real(i), 255 - real(i), at::kByte); });
  all["int8"] = kind_of(at::kChar, 1, -1);
  all["int16"] = kind_of(at::kShort, 1, -300);
  all["int32"] = kind_of(at::kInt, 1, -(1 << 20));
  all["int64"] = kind_of(at::kLong, 1, -std::exp2(40));
  all["float16"] = kind_of(at::kHalf, .25, -1);
  all["bfloat16"] = kind_of(at::kBFloat16, .25, -1);
  all["float32"] = kind_of(at::kFloat, .25, -1);
  all["float64"] = kind([](size_t i) { return pair_of(real(i) / 3, -real(i), at::kDouble); });
  all["complex64"] = kind([](size_t i) {
    return at::view_as_complex(pair_of(real(i), -real(i), at::kFloat).view({1, 2}));
  });
  all["complex128"] = kind([](size_t i) {
    return at::view_as_complex(pair_of(real(i) / 3, real(i), at::kDouble).view({1, 2}));
  });
  return all;
}

TEST(ParityTest, BatchesAreThoseOfPythonsDefaultCollate) {
  const auto ours = kinds();
  const Json cases = golden("batches");
  EXPECT_EQ(cases.size(), ours.size());
  for (const Json& json : cases) {
    for (const int64_t num_workers : {0, 2}) {
      const std::vector<Json> batches = ours.at(json["kind"])(num_workers);
      EXPECT_EQ(Json(batches), json["batches"]) << json["kind"];
    }
  }
}

}  // namespace
}  // namespace stoker
