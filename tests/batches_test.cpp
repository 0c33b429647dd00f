// SPDX-License-Identifier: BSD-3-Clause

// Every kind of sample, from the dataset through the workers to the batch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stoker/dataloader.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <array>
#include <complex>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "datasets.h"

namespace stoker {

struct Face {
  at::Tensor image;
  std::string name;
  int32_t age;
};
struct Faces {
  at::Tensor images;
  std::vector<std::string> names;
  at::Tensor ages;
};
template <>
struct SampleTraits<Face> {
  using batch_type = Faces;
  static constexpr std::array names = {"image", "name", "age"};
  static auto fields(const Face& face) { return std::tie(face.image, face.name, face.age); }
};

namespace {

using testing::ElementsAre;

// One epoch of samples 0 .. 7 in two batches of 4, fetched in this process and in workers. The
// second batch meets the layout that the first one left behind.
template <class Make, class Check>
void for_each_batch(Make make, Check check) {
  for (const int64_t workers : {0, 2}) {
    SCOPED_TRACE(std::to_string(workers) + " workers");
    DataLoader loader(Made{8, make}, {.batch_size = 4, .num_workers = workers});
    for (int epoch = 0; epoch < 2; ++epoch) {
      int64_t first = 0;
      for (auto& batch : loader) {
        check(batch, first);
        first += 4;
      }
      EXPECT_EQ(first, 8);
    }
  }
}

at::Tensor range(int64_t first) { return at::arange(first, first + 4); }

TEST(BatchesTest, TensorsAreStacked) {
  for_each_batch(
      [](size_t i) {
        return at::full({2, 3}, static_cast<float>(i));
      },
      [](at::Tensor& batch, int64_t first) {
        EXPECT_EQ(batch.scalar_type(), at::kFloat);
        EXPECT_TRUE(batch.equal(range(first).to(at::kFloat).view({4, 1, 1}).expand({4, 2, 3})));
        EXPECT_TRUE(batch.is_contiguous());
      });
}

TEST(BatchesTest, TensorsOfEveryDtypeKeepIt) {
  for (const at::ScalarType dtype :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kUInt16, at::kUInt32,
        at::kUInt64, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexHalf,
        at::kComplexFloat, at::kComplexDouble, at::kFloat8_e5m2, at::kFloat8_e4m3fn}) {
    SCOPED_TRACE(c10::toString(dtype));
    const auto make = [=](size_t i) {
      const auto n = static_cast<int64_t>(i);
      return at::tensor({n % 2, n, n + 1, n / 4}, at::kLong).to(dtype);
    };
    for_each_batch(make, [&](at::Tensor& batch, int64_t first) {
      ASSERT_EQ(batch.scalar_type(), dtype);
      ASSERT_EQ(batch.sizes(), (at::IntArrayRef{4, 4}));
      for (int64_t row = 0; row < 4; ++row) {
        const at::Tensor expected = make(static_cast<size_t>(first + row));
        EXPECT_TRUE(batch[row].view(at::kByte).equal(expected.view(at::kByte)));
      }
    });
  }
}

TEST(BatchesTest, TensorsOfEveryLayoutAreReadAsTheyLook) {
  const auto make = [](size_t i) {
    const at::Tensor base = at::arange(24).view({4, 6}) + 100 * static_cast<int64_t>(i);
    return std::vector<at::Tensor>{base.t(),                            // transposed
                                   base.slice(1, 1, 6, 2),              // strided
                                   base[2][3],                          // 0-dim
                                   base.slice(0, 2, 2),                 // empty
                                   base[0].expand({3, 6}),              // expanded
                                   at::zeros({100000}).slice(0, 5, 7),  // of a large storage
                                   base.to(at::kFloat).requires_grad_()};
  };
  for_each_batch(make, [&](std::vector<at::Tensor>& batch, int64_t first) {
    ASSERT_EQ(batch.size(), 7u);
    for (int64_t row = 0; row < 4; ++row) {
      const auto expected = make(static_cast<size_t>(first + row));
      for (size_t leaf = 0; leaf < batch.size(); ++leaf) {
        EXPECT_TRUE(batch[leaf][row].equal(expected[leaf].detach())) << leaf;
      }
    }
    EXPECT_EQ(batch[2].sizes(), at::IntArrayRef{4});
    EXPECT_EQ(batch[3].sizes(), (at::IntArrayRef{4, 0, 6}));
    EXPECT_FALSE(batch[6].requires_grad());
  });
}

enum class Colour : uint8_t { kRed, kGreen };

TEST(BatchesTest, NumbersKeepTheDtypeOfTheirType) {
  const auto make = [](size_t i) {
    return std::tuple(
        i % 2 == 0, static_cast<int8_t>(i), static_cast<uint16_t>(i), static_cast<int32_t>(i),
        uint64_t{i}, static_cast<float>(i) / 2, static_cast<double>(i) / 4,
        c10::Half(static_cast<float>(i)), c10::BFloat16(static_cast<float>(i)),
        std::complex<float>(0, static_cast<float>(i)), i % 2 == 0 ? Colour::kRed : Colour::kGreen);
  };
  for_each_batch(make, [](auto& batch, int64_t first) {
    std::apply(
        [&](auto&... leaf) {
          EXPECT_THAT(
              (std::vector{leaf.scalar_type()...}),
              ElementsAre(at::kBool, at::kChar, at::kUInt16, at::kInt, at::kUInt64, at::kFloat,
                          at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kByte));
        },
        batch);
    const at::Tensor index = range(first);
    EXPECT_TRUE(std::get<0>(batch).equal(index.remainder(2).eq(0)));
    EXPECT_EQ(numbers(std::get<4>(batch)), numbers(index));
    EXPECT_TRUE(std::get<5>(batch).equal(index.to(at::kFloat) / 2));
    EXPECT_TRUE(std::get<6>(batch).equal(index.to(at::kDouble) / 4));
    EXPECT_EQ(numbers(std::get<7>(batch)), numbers(index));
    EXPECT_EQ(numbers(std::get<8>(batch)), numbers(index));
    EXPECT_EQ(numbers(at::imag(std::get<9>(batch))), numbers(index));
    EXPECT_EQ(numbers(std::get<10>(batch)), numbers(index.remainder(2)));
  });
}

TEST(BatchesTest, StringsOfAnyLengthBecomeAVector) {
  const auto make = [](size_t i) { return std::string(i * i * 1000, static_cast<char>('a' + i)); };
  for_each_batch(make, [&](std::vector<std::string>& batch, int64_t first) {
    ASSERT_EQ(batch.size(), 4u);
    for (size_t row = 0; row < 4; ++row) {
      EXPECT_EQ(batch[row], make(static_cast<size_t>(first) + row));
    }
  });
}

TEST(BatchesTest, ZeroBytesInStringsAreKept) {
  const std::string text("a\0b", 3);
  for_each_batch([=](size_t) { return text; },
                 [&](std::vector<std::string>& batch, int64_t) {
                   EXPECT_THAT(batch, ElementsAre(text, text, text, text));
                 });
}

TEST(BatchesTest, ContainersAreCollatedFieldByField) {
  const auto make = [](size_t i) {
    const auto n = static_cast<int64_t>(i);
    return std::pair(std::array<int64_t, 2>{n, 2 * n},
                     std::vector<std::tuple<int64_t, std::string>>{{3 * n, "x"}, {4 * n, "y"}});
  };
  for_each_batch(make, [](auto& batch, int64_t first) {
    EXPECT_EQ(numbers(batch.first[0]), numbers(range(first)));
    EXPECT_EQ(numbers(batch.first[1]), numbers(2 * range(first)));
    ASSERT_EQ(batch.second.size(), 2u);
    EXPECT_EQ(numbers(std::get<0>(batch.second[0])), numbers(3 * range(first)));
    EXPECT_EQ(numbers(std::get<0>(batch.second[1])), numbers(4 * range(first)));
    EXPECT_THAT(std::get<1>(batch.second[1]), ElementsAre("y", "y", "y", "y"));
  });
}

TEST(BatchesTest, MapsAreCollatedKeyByKey) {
  const auto make = [](size_t i) {
    const auto n = static_cast<int64_t>(i);
    std::unordered_map<int, int64_t> by_number;
    // Another order of insertion for every other sample.
    for (int k = 0; k < 5; ++k) by_number[i % 2 == 0 ? k : 4 - k] = n;
    return std::tuple(std::map<std::string, int64_t>{{"b", n}, {"a", -n}}, by_number);
  };
  for_each_batch(make, [](auto& batch, int64_t first) {
    auto& [by_name, by_number] = batch;
    ASSERT_EQ(by_name.size(), 2u);
    EXPECT_EQ(numbers(by_name.at("a")), numbers(-range(first)));
    EXPECT_EQ(numbers(by_name.at("b")), numbers(range(first)));
    ASSERT_EQ(by_number.size(), 5u);
    for (int k = 0; k < 5; ++k) EXPECT_EQ(numbers(by_number.at(k)), numbers(range(first)));
  });
}

TEST(BatchesTest, AStructOfTheUsersBecomesItsBatchType) {
  const auto make = [](size_t i) {
    return Face{at::full({2}, static_cast<int64_t>(i)), "face " + std::to_string(i),
                static_cast<int32_t>(20 + i)};
  };
  for_each_batch(make, [](Faces& batch, int64_t first) {
    EXPECT_TRUE(batch.images.equal(range(first).view({4, 1}).expand({4, 2})));
    EXPECT_EQ(batch.names[3], "face " + std::to_string(first + 3));
    EXPECT_EQ(batch.ages.scalar_type(), at::kInt);
    EXPECT_EQ(numbers(batch.ages), numbers(20 + range(first)));
  });
}

TEST(BatchesTest, TorchsExamplesStayExamples) {
  const auto make = [](size_t i) {
    return torch::data::Example<>(at::full({2}, static_cast<int64_t>(i)),
                                  at::tensor(static_cast<int64_t>(i)));
  };
  for_each_batch(make, [](torch::data::Example<>& batch, int64_t first) {
    EXPECT_EQ(batch.data.sizes(), (at::IntArrayRef{4, 2}));
    EXPECT_EQ(numbers(batch.target), numbers(range(first)));
  });
}

TEST(BatchesTest, ShapesMayDifferFromBatchToBatch) {
  // Batches of 2 x 1, 2 x 2, .. 2 x 6, and back: larger and smaller than what was learned.
  const auto make = [](size_t i) {
    const auto length = static_cast<int64_t>(i / 2 % 12);
    return std::pair(at::full({length < 6 ? length + 1 : 12 - length}, static_cast<int64_t>(i)),
                     std::vector<int64_t>(static_cast<size_t>(length), length));
  };
  for (const int64_t workers : {0, 1, 3}) {
    DataLoader loader(Made{96, make}, {.batch_size = 2, .num_workers = workers});
    for (int epoch = 0; epoch < 2; ++epoch) {
      size_t index = 0;
      for (auto& [tensor, vector] : loader) {
        for (int64_t row = 0; row < 2; ++row, ++index) {
          EXPECT_TRUE(tensor[row].equal(make(index).first)) << index;
          ASSERT_EQ(vector.size(), make(index).second.size()) << index;
        }
      }
      EXPECT_EQ(index, 96u);
    }
  }
}

TEST(BatchesTest, DtypesMayDifferFromBatchToBatch) {
  const auto make = [](size_t i) {
    return at::full({3}, static_cast<int64_t>(i)).to(i / 4 == 0 ? at::kShort : at::kDouble);
  };
  for_each_batch(make, [](at::Tensor& batch, int64_t first) {
    EXPECT_EQ(batch.scalar_type(), first == 0 ? at::kShort : at::kDouble);
    EXPECT_EQ(numbers(batch.select(1, 0)), numbers(range(first)));
  });
}

TEST(BatchesTest, ABatchOfManySamplesIsWhole) {
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(Counting{100000}, {.batch_size = 70000, .num_workers = workers});
    EXPECT_EQ(epoch_of(loader), up_to(100000));
  }
}

}  // namespace
}  // namespace stoker
