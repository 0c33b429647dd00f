// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
#include <utility>

#include "job.h"

// The datasets, one class each for stoker, torch::data and the limit. In every sample all floats
// and the label are the sample's index, so that whoever receives a batch can tell that it is right.

namespace bench {

/// A row of floats and a label for each sample.
struct Rows {
  torch::Tensor labels;
  torch::Tensor data;

  Rows(int64_t samples, int64_t width)
      : labels(torch::arange(samples, torch::kLong)),
        data(labels.to(torch::kFloat).unsqueeze(1).expand({samples, width}).contiguous()) {}
};

/// Samples that lie in memory.
///
/// kView is what the table calls `tiny`: the sample is a view over the row (`from_blob`), 0.5 us
/// for both tensors. kSelect is what most programs write, `{data[i], labels[i]}`, but two ATen
/// selects cost about 1.8 us, several times what a good loader adds to a sample; that row measures
/// ATen more than any loader.
class StoredSamples : public torch::data::datasets::Dataset<StoredSamples> {
 public:
  enum class Get { kView, kSelect };

  StoredSamples(int64_t samples, int64_t width, Get get, std::chrono::duration<double> sleep)
      : rows_(samples, width),
        first_label_(rows_.labels.data_ptr<int64_t>()),
        first_row_(rows_.data.data_ptr<float>()),
        width_(width),
        get_(get),
        sleep_(sleep) {}

  torch::data::Example<> get(size_t index) override {
    if (sleep_.count() > 0) std::this_thread::sleep_for(sleep_);
    const auto i = static_cast<int64_t>(index);
    if (get_ == Get::kSelect) return {rows_.data[i], rows_.labels[i]};
    return {torch::from_blob(first_row_ + i * width_, {width_}),
            torch::from_blob(first_label_ + i, {}, torch::kLong)};
  }
  std::optional<size_t> size() const override { return rows_.labels.numel(); }

 private:
  Rows rows_;  // shared by copies: torch::data copies the dataset for each thread
  int64_t* first_label_;
  float* first_row_;
  int64_t width_;
  Get get_;
  std::chrono::duration<double> sleep_;
};

/// float[3,224,224], made from the index: as much memory traffic as a decoded image, without the
/// decoding, which would hide the loader.
class FilledImages : public torch::data::datasets::Dataset<FilledImages> {
 public:
  explicit FilledImages(int64_t samples) : samples_(samples) {}

  torch::data::Example<> get(size_t index) override {
    const auto label = static_cast<int64_t>(index);
    return {torch::full({3, 224, 224}, static_cast<float>(label)),
            torch::scalar_tensor(label, torch::kLong)};
  }
  std::optional<size_t> size() const override { return samples_; }

 private:
  int64_t samples_;
};

/// Calls `use` with the dataset that the job names.
template <class Use>
auto with_dataset(const Job& job, Use use) {
  if (job.dataset == "filled") return use(FilledImages(job.samples));
  const auto get = job.get == "select" ? StoredSamples::Get::kSelect : StoredSamples::Get::kView;
  const std::chrono::duration<double, std::milli> sleep(job.sleep_ms);
  return use(StoredSamples(job.samples, job.width, get, sleep));
}

}  // namespace bench
