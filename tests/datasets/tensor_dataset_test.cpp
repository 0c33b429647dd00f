// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <stoker/datasets/subset.h>
#include <stoker/datasets/tensor.h>

#include <cstddef>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "datasets.h"

namespace stoker {
namespace {

using at::Tensor;

TEST(TensorDatasetTest, SampleIIsRowIOfEachTensor) {
  const Tensor images = at::arange(24).view({4, 2, 3});
  const Tensor labels = at::arange(4, at::kDouble);
  TensorDataset dataset(images, labels);
  static_assert(std::is_same_v<decltype(dataset), TensorDataset<2>>);
  EXPECT_EQ(dataset.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const auto [image, label] = dataset.get(i);
    EXPECT_TRUE(image.equal(images[static_cast<int64_t>(i)]));
    EXPECT_TRUE(label.equal(labels[static_cast<int64_t>(i)]));
    EXPECT_EQ(label.dim(), 0);
    EXPECT_EQ(image.scalar_type(), at::kLong);
    EXPECT_TRUE(image.is_alias_of(images));
  }
  EXPECT_TRUE(dataset.tensor(1).is_same(labels));
}

// Whatever lies in memory in another way than it is read.
TEST(TensorDatasetTest, RowsAreThoseOfTensorsOfAnyLayoutAndType) {
  const Tensor base = at::randn({6, 4, 5});
  const Tensor complex = at::complex(base, base + 1);
  const std::vector<Tensor> tensors = {
      base,
      base.transpose(0, 2),
      base.slice(1, 1, 4, 2),
      base[0].expand({3, 4, 5}),
      base.narrow(0, 2, 3),
      base.to(at::kHalf),
      base.gt(0),
      complex,
      complex.conj(),
      at::imag(complex.conj()),
      base.to_sparse(),
      at::randn({3, 2}).requires_grad_(),
      at::zeros({3, 0}),
  };
  for (const Tensor& tensor : tensors) {
    TensorDataset dataset(tensor);
    ASSERT_EQ(dataset.size(), static_cast<size_t>(tensor.size(0)));
    for (size_t i = 0; i < dataset.size(); ++i) {
      const Tensor row = dataset.get(i)[0];
      const Tensor expected = tensor[static_cast<int64_t>(i)];
      EXPECT_EQ(row.sizes(), expected.sizes());
      EXPECT_EQ(row.scalar_type(), expected.scalar_type());
      EXPECT_EQ(row.requires_grad(), expected.requires_grad());
      EXPECT_TRUE(row.to_dense().equal(expected.to_dense())) << tensor.toString();
      EXPECT_TRUE(
          (row.to_dense() + row.to_dense()).equal(expected.to_dense() + expected.to_dense()));
    }
  }
}

TEST(TensorDatasetTest, ABatchIsMadeOfTheSameSamples) {
  TensorDataset dataset(at::randn({9, 3}), at::arange(9));
  const std::vector<size_t> indices = {8, 0, 0, 3};
  const auto samples = dataset.get_batch(indices);
  ASSERT_EQ(samples.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(samples[i][0].equal(dataset.get(indices[i])[0]));
    EXPECT_TRUE(samples[i][1].equal(dataset.get(indices[i])[1]));
  }
}

TEST(TensorDatasetTest, RefusesTensorsThatAreNotRowsOfTheSameSamples) {
  EXPECT_EQ(
      text_of<std::invalid_argument>([] {
        TensorDataset(at::zeros({3, 2}), at::zeros({4}));
      }),
      "stoker: tensor 1 of the TensorDataset has 4 rows, and tensor 0 has 3; all must have the "
      "same number");
  EXPECT_EQ(text_of<std::invalid_argument>([] { TensorDataset(at::zeros({})); }),
            "stoker: tensor 0 of the TensorDataset is a scalar; samples are rows of its first "
            "dimension");
  EXPECT_EQ(text_of<std::invalid_argument>([] { TensorDataset(at::zeros({3}), Tensor()); }),
            "stoker: tensor 1 of the TensorDataset is undefined; assign it first");
  EXPECT_EQ(
      text_of<std::invalid_argument>(
          [] { TensorDataset(at::zeros({3}, at::TensorOptions(at::kMeta))); }),
      "stoker: tensor 0 of the TensorDataset is on meta; move it to the CPU, and batches back");
  TensorDataset dataset(at::zeros({3}));
  EXPECT_EQ(text_of<std::out_of_range>([&] { dataset.get(3); }),
            "stoker: a TensorDataset of 3 samples was asked for sample 3");
}

TEST(TensorDatasetTest, BatchesOfALoaderAreRowsOfItsTensors) {
  const Tensor images = at::randn({50, 3, 4});
  const Tensor labels = at::arange(50);
  for (const int64_t workers : {0, 2}) {
    DataLoader loader(TensorDataset(images, labels),
                      {.batch_size = 8, .shuffle = true, .num_workers = workers});
    int64_t rows = 0;
    for (auto& [image, label] : loader) {
      EXPECT_TRUE(image.equal(images.index_select(0, label)));
      rows += label.size(0);
    }
    EXPECT_EQ(rows, 50);
  }
}

// Those rows are copied at once; the others one by one, with the same result.
TEST(TensorDatasetTest, GathersRowsThatAreRunsOfBytes) {
  const Tensor base = at::randn({6, 4, 5});
  const Tensor complex = at::complex(base, base + 1);
  const std::vector<size_t> indices = {5, 0, 0, 3};
  const auto gathers = [&](const Tensor& tensor) {
    const Tensor rows = at::empty({4, 4, 5}, tensor.options());
    std::byte* const columns[] = {static_cast<std::byte*>(rows.mutable_data_ptr())};
    if (!TensorDataset(tensor).gather(indices, columns)) return false;
    EXPECT_TRUE(rows.equal(tensor.index_select(0, at::tensor({5, 0, 0, 3}, at::kLong))));
    return true;
  };
  EXPECT_TRUE(gathers(base));
  EXPECT_TRUE(gathers(base.to(at::kHalf)));
  EXPECT_TRUE(gathers(complex));
  EXPECT_TRUE(gathers(base[1].expand({6, 4, 5})));
  EXPECT_TRUE(gathers(at::randn({12, 4, 5}).slice(0, 0, 12, 2)));
  EXPECT_FALSE(gathers(base.transpose(1, 2).contiguous().transpose(1, 2)));
  EXPECT_FALSE(gathers(complex.conj()));
  EXPECT_FALSE(gathers(at::imag(complex)));

  const std::vector<size_t> beyond = {1, 6};
  const Tensor rows = at::empty({2, 4, 5});
  std::byte* const columns[] = {static_cast<std::byte*>(rows.mutable_data_ptr())};
  EXPECT_EQ(text_of<std::out_of_range>([&] { TensorDataset(base).gather(beyond, columns); }),
            "stoker: a TensorDataset of 6 samples was asked for sample 6");
}

TEST(TensorDatasetTest, BatchesAreTheSameHoweverTheRowsLie) {
  const Tensor labels = at::arange(50);
  const Tensor images = at::randn({50, 3, 4});
  const Tensor strided = images.transpose(1, 2).contiguous().transpose(1, 2);
  const Numbers odd = {1, 3, 5, 7, 49, 11, 13};
  for (const Tensor& tensor : {images, strided, at::imag(at::complex(images, images).conj())}) {
    for (const int64_t workers : {0, 2}) {
      const DataLoaderOptions options{.batch_size = 4, .num_workers = workers};
      DataLoader whole(TensorDataset(tensor, labels), options);
      for (auto& [image, label] : whole) {
        EXPECT_TRUE(image.equal(tensor.index_select(0, label)));
      }
      DataLoader part(Subset(TensorDataset(tensor, labels), odd), options);
      Numbers seen;
      for (auto& [image, label] : part) {
        EXPECT_TRUE(image.equal(tensor.index_select(0, label)));
        for (const int64_t number : numbers(label)) seen.push_back(number);
      }
      EXPECT_EQ(seen, odd);
    }
  }
}

}  // namespace
}  // namespace stoker
