// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/sample.h>
#include <torch/data/example.h>

#include <array>
#include <complex>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "slot_memory.h"

namespace stoker {

using at::Tensor;
using torch::data::Example;

enum class Colour : uint8_t { kRed = 1, kBlue = 2 };

struct Visitor {
  Tensor image;
  int64_t person;
};
struct Visitors {
  Tensor image, person;
};
template <>
struct SampleTraits<Visitor> {
  using batch_type = Visitors;
  static constexpr std::array names = {"image", "person"};
  static auto fields(const Visitor& face) { return std::tie(face.image, face.person); }
};

struct Plain {
  std::string name;
  std::vector<float> values;
};
template <>
struct SampleTraits<Plain> {
  static auto fields(const Plain& plain) { return std::tie(plain.name, plain.values); }
};

namespace {

using detail::flat;
using detail::paths_of;
using testing::ElementsAre;
using testing::HasSubstr;

using Strings = std::vector<std::string>;

template <class Sample, class Batch>
constexpr bool kIs = std::is_same_v<BatchOf<Sample>, Batch>;

static_assert(kIs<Tensor, Tensor>);
static_assert(kIs<bool, Tensor> && kIs<char, Tensor> && kIs<float, Tensor> && kIs<double, Tensor>);
static_assert(kIs<int8_t, Tensor> && kIs<uint64_t, Tensor> && kIs<long long, Tensor>);
static_assert(kIs<at::Half, Tensor> && kIs<at::BFloat16, Tensor>);
static_assert(kIs<std::complex<float>, Tensor> && kIs<c10::complex<double>, Tensor>);
static_assert(kIs<Colour, Tensor>);
static_assert(kIs<std::string, Strings>);
static_assert(kIs<std::pair<Tensor, std::string>, std::pair<Tensor, Strings>>);
static_assert(kIs<std::tuple<Tensor, int, std::string>, std::tuple<Tensor, Tensor, Strings>>);
static_assert(kIs<std::array<int, 3>, std::array<Tensor, 3>>);
static_assert(kIs<std::vector<int>, std::vector<Tensor>>);
static_assert(kIs<std::vector<bool>, std::vector<Tensor>>);
static_assert(kIs<std::vector<std::string>, std::vector<Strings>>);
static_assert(kIs<std::map<std::string, Tensor>, std::map<std::string, Tensor>>);
static_assert(kIs<std::map<int, std::string>, std::map<int, Strings>>);
static_assert(kIs<std::unordered_map<std::string, int>, std::unordered_map<std::string, Tensor>>);
static_assert(kIs<std::map<Colour, float>, std::map<Colour, Tensor>>);
static_assert(kIs<Example<>, Example<>>);
static_assert(kIs<Example<Tensor, int>, Example<Tensor, Tensor>>);
static_assert(kIs<Example<Tensor, std::string>, Example<Tensor, Strings>>);
static_assert(kIs<Example<Tensor, void>, Example<Tensor, void>>);
static_assert(kIs<std::vector<std::pair<int, std::map<int, Tensor>>>,
                  std::vector<std::pair<Tensor, std::map<int, Tensor>>>>);
static_assert(kIs<Visitor, Visitors>);
static_assert(kIs<Plain, std::tuple<Strings, std::vector<Tensor>>>);
static_assert(
    kIs<std::pair<Visitor, Plain>, std::pair<Visitors, std::tuple<Strings, std::vector<Tensor>>>>);
static_assert(kIs<const Tensor&, Tensor>);

static_assert(!SampleType<const char*> && !SampleType<void*> && !SampleType<std::string_view>);
static_assert(!SampleType<std::unique_ptr<int>> && !SampleType<long double>);
static_assert(!SampleType<std::vector<void*>> && !SampleType<std::pair<int, const char*>>);
static_assert(!SampleType<std::map<float, int>> && !SampleType<std::map<int, void*>>);
static_assert(!SampleType<Visitors>);

template <class T>
at::ScalarType dtype_of(T value) {
  return flat(value).leaves().at(0).dtype;
}

TEST(SampleTest, NumbersHaveTheDtypeOfTheirType) {
  EXPECT_EQ(dtype_of(true), at::kBool);
  EXPECT_EQ(dtype_of(int8_t{}), at::kChar);
  EXPECT_EQ(dtype_of(uint8_t{}), at::kByte);
  EXPECT_EQ(dtype_of(int16_t{}), at::kShort);
  EXPECT_EQ(dtype_of(uint16_t{}), at::kUInt16);
  EXPECT_EQ(dtype_of(int32_t{}), at::kInt);
  EXPECT_EQ(dtype_of(uint32_t{}), at::kUInt32);
  EXPECT_EQ(dtype_of(int64_t{}), at::kLong);
  EXPECT_EQ(dtype_of(0LL), at::kLong);
  EXPECT_EQ(dtype_of(size_t{}), at::kUInt64);
  EXPECT_EQ(dtype_of(1.0f), at::kFloat);
  EXPECT_EQ(dtype_of(1.0), at::kDouble);
  EXPECT_EQ(dtype_of(at::Half(1)), at::kHalf);
  EXPECT_EQ(dtype_of(at::BFloat16(1)), at::kBFloat16);
  EXPECT_EQ(dtype_of(std::complex<float>()), at::kComplexFloat);
  EXPECT_EQ(dtype_of(c10::complex<double>()), at::kComplexDouble);
  EXPECT_EQ(dtype_of(Colour::kRed), at::kByte);
}

// As the core does it, but for a batch of one sample and without a slot.
template <class Sample>
BatchOf<Sample> batch_of_one(const Sample& sample) {
  using Kind = detail::FlatSample::Kind;
  const detail::FlatSample taken_apart = flat(sample);
  detail::BatchLeaves batch;
  batch.structure = taken_apart.structure();
  for (const auto& leaf : taken_apart.leaves()) {
    auto& out = batch.leaves.emplace_back();
    if (leaf.kind == Kind::kString) {
      out.strings = {std::string(leaf.text)};
    } else if (leaf.kind == Kind::kTensor) {
      out.tensor = leaf.tensor->unsqueeze(0);
    } else {
      out.tensor = at::zeros({1}, leaf.dtype);
      std::memcpy(out.tensor.mutable_data_ptr(), leaf.number.data(), leaf.number_bytes);
    }
  }
  return detail::Codec<Sample>::gather(batch);
}

double value(const Tensor& tensor) { return tensor.to(at::kDouble).item<double>(); }

TEST(SampleTest, NumbersComeBack) {
  EXPECT_EQ(value(batch_of_one(int8_t{-7})), -7);
  EXPECT_EQ(value(batch_of_one(at::Half(0.5))), 0.5);
  EXPECT_EQ(value(batch_of_one(Colour::kBlue)), 2);
  EXPECT_EQ(value(batch_of_one(true)), 1);
  EXPECT_TRUE(at::equal(batch_of_one(std::complex<double>(1, 2)),
                        at::full({1}, c10::complex<double>(1, 2), at::kComplexDouble)));
}

TEST(SampleTest, FieldsComeBackInOrder) {
  const auto [tensor, number, text] =
      batch_of_one(std::tuple(at::ones({2}), 3.5, std::string("text")));
  EXPECT_TRUE(at::equal(tensor, at::ones({1, 2})));
  EXPECT_EQ(value(number), 3.5);
  EXPECT_THAT(text, ElementsAre("text"));
  const auto [first, second] = batch_of_one(std::pair(1, 2));
  EXPECT_EQ(value(first), 1);
  EXPECT_EQ(value(second), 2);
}

TEST(SampleTest, ContainersComeBack) {
  const auto array = batch_of_one(std::array{4, 5});
  EXPECT_EQ(value(array[0]), 4);
  EXPECT_EQ(value(array[1]), 5);
  const auto bools = batch_of_one(std::vector<bool>{true, false, true});
  ASSERT_EQ(bools.size(), 3u);
  EXPECT_EQ(bools[0].scalar_type(), at::kBool);
  EXPECT_EQ(value(bools[1]), 0);
  EXPECT_EQ(value(bools[2]), 1);
  EXPECT_TRUE(batch_of_one(std::vector<int>()).empty());
}

TEST(SampleTest, MapsComeBackWithTheirKeys) {
  const auto named = batch_of_one(std::map<std::string, int>{{"a", 1}, {"", 2}, {"c\0d", 3}});
  ASSERT_EQ(named.size(), 3u);
  EXPECT_EQ(value(named.at("")), 2);
  const auto numbered = batch_of_one(std::map<int16_t, std::string>{{-300, "x"}, {7, "y"}});
  EXPECT_THAT(numbered.at(-300), ElementsAre("x"));
  EXPECT_THAT(numbered.at(7), ElementsAre("y"));
  const auto coloured = batch_of_one(std::unordered_map<Colour, int>{{Colour::kBlue, 8}});
  EXPECT_EQ(value(coloured.at(Colour::kBlue)), 8);
}

TEST(SampleTest, UnorderedMapsHaveOneOrder) {
  std::unordered_map<std::string, int> forth, back;
  back.reserve(1000);
  for (int i = 0; i < 20; ++i) forth.emplace(std::to_string(i), i);
  for (int i = 19; i >= 0; --i) back.emplace(std::to_string(i), i);
  EXPECT_EQ(flat(forth).structure(), flat(back).structure());
  EXPECT_EQ(paths_of(forth), paths_of(back));
}

TEST(SampleTest, NestedContainersComeBack) {
  using Sample = std::vector<std::map<int, std::vector<std::string>>>;
  const auto batch = batch_of_one(Sample{{{1, {"a", "b"}}, {2, {}}}, {}, {{3, {"c"}}}});
  ASSERT_EQ(batch.size(), 3u);
  EXPECT_THAT(batch[0].at(1), ElementsAre(Strings{"a"}, Strings{"b"}));
  EXPECT_TRUE(batch[0].at(2).empty());
  EXPECT_TRUE(batch[1].empty());
  EXPECT_THAT(batch[2].at(3), ElementsAre(Strings{"c"}));
}

TEST(SampleTest, ExamplesComeBack) {
  const auto example = batch_of_one(Example<Tensor, int>(at::ones({2}), 5));
  EXPECT_TRUE(at::equal(example.data, at::ones({1, 2})));
  EXPECT_EQ(value(example.target), 5);
  const Example<Tensor, void> alone = batch_of_one(Example<Tensor, void>(at::ones({3})));
  EXPECT_TRUE(at::equal(alone.data, at::ones({1, 3})));
}

TEST(SampleTest, StructsOfTheUsersComeBack) {
  const Visitors faces = batch_of_one(Visitor{at::ones({2}), 9});
  EXPECT_TRUE(at::equal(faces.image, at::ones({1, 2})));
  EXPECT_EQ(value(faces.person), 9);
  const auto [names, values] = batch_of_one(Plain{"n", {1, 2}});
  EXPECT_THAT(names, ElementsAre("n"));
  EXPECT_EQ(value(values.at(1)), 2);
}

TEST(SampleTest, StructureTellsLengthsAndKeysAndNothingElse) {
  EXPECT_EQ(flat(std::vector{1, 2}).structure(), flat(std::vector{3, 4}).structure());
  EXPECT_NE(flat(std::vector{1, 2}).structure(), flat(std::vector{1}).structure());
  using Map = std::map<std::string, int>;
  EXPECT_NE(flat(Map{{"ab", 1}, {"c", 1}}).structure(), flat(Map{{"a", 1}, {"bc", 1}}).structure());
  EXPECT_EQ(flat(std::tuple(1, std::string("x"))).structure(), "");
}

TEST(SampleTest, PathsSayWhatAMessageCallsEachLeaf) {
  EXPECT_THAT(paths_of(at::ones({1})), ElementsAre(""));
  EXPECT_THAT(paths_of(std::tuple(1, std::pair(2, 3))), ElementsAre("[0]", "[1][0]", "[1][1]"));
  EXPECT_THAT(paths_of(Visitor{}), ElementsAre(".image", ".person"));
  EXPECT_THAT(paths_of(Plain{"n", {1, 2}}), ElementsAre("[0]", "[1][0]", "[1][1]"));
  EXPECT_THAT(paths_of(Example<Tensor, int>()), ElementsAre(".data", ".target"));
  using Boxes = std::map<std::string, std::vector<int>>;
  EXPECT_THAT(paths_of(Boxes{{"boxes", {1, 2}}, {"ids", {3}}}),
              ElementsAre("[\"boxes\"][0]", "[\"boxes\"][1]", "[\"ids\"][0]"));
  EXPECT_THAT(paths_of(std::array{Visitor{}}), ElementsAre("[0].image", "[0].person"));
}

class DamagedStructureTest : public testing::Test {
 protected:
  template <class Sample>
  std::string refusal() {
    return text_of<std::runtime_error>([this] { detail::Codec<Sample>::gather(leaves_); });
  }
  void number() { leaves_.leaves.emplace_back().tensor = at::zeros({1}); }
  void length(uint64_t value) {
    leaves_.structure.append(reinterpret_cast<const char*>(&value), sizeof value);
  }

  detail::BatchLeaves leaves_;
};

TEST_F(DamagedStructureTest, MoreElementsThanThereAre) {
  number();
  length(~uint64_t{0});
  EXPECT_THAT(refusal<std::vector<int>>(), HasSubstr("the structure of a batch"));
}

TEST_F(DamagedStructureTest, NoLength) {
  EXPECT_THAT(refusal<std::vector<int>>(), HasSubstr("the structure of a batch"));
}

TEST_F(DamagedStructureTest, KeysThatEndBehindTheirEnd) {
  number();
  length(1);
  length(~uint64_t{0});
  using Map = std::map<std::string, int>;
  EXPECT_THAT(refusal<Map>(), HasSubstr("the structure of a batch"));
}

TEST_F(DamagedStructureTest, AKeyOfAnotherSize) {
  number();
  length(1);
  length(1);
  leaves_.structure += 'x';
  using Map = std::map<int, int>;
  EXPECT_THAT(refusal<Map>(), HasSubstr("the structure of a batch"));
}

TEST_F(DamagedStructureTest, LeavesOfAnotherKind) {
  number();
  EXPECT_THAT(refusal<std::string>(), HasSubstr("the structure of a batch"));
  leaves_.clear();
  leaves_.leaves.emplace_back().strings = {"x"};
  EXPECT_THAT(refusal<int>(), HasSubstr("the structure of a batch"));
}

}  // namespace
}  // namespace stoker
