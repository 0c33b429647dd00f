// SPDX-License-Identifier: BSD-3-Clause
#include <torch/data/dataloader.h>
#include <torch/data/datasets/map.h>
#include <torch/data/samplers/random.h>
#include <torch/data/samplers/sequential.h>
#include <torch/data/transforms/stack.h>

#include <memory>
#include <utility>

#include "measure.h"
#include "workloads.h"

namespace {

template <class Sampler, class Dataset>
bench::RunEpoch construct(Dataset dataset, const bench::Job& job) {
  auto options = torch::data::DataLoaderOptions()
                     .batch_size(static_cast<size_t>(job.batch_size))
                     .workers(static_cast<size_t>(job.workers));
  auto loader =
      torch::data::make_data_loader(std::move(dataset).map(torch::data::transforms::Stack<>()),
                                    Sampler(static_cast<size_t>(job.epoch_samples)), options);
  return [loader = std::shared_ptr(std::move(loader))](const bench::Consume& consume) {
    for (const auto& batch : *loader) {
      if (!consume(batch.data, batch.target)) break;
    }
  };
}

nlohmann::json run(const bench::Job& job) {
  if (job.dataset == "tensors") throw std::invalid_argument("torch::data's has no labels");
  if (job.fork_each_epoch) throw std::invalid_argument("torch::data forks no workers");
  return bench::with_dataset(job, [&](auto dataset) {
    return bench::measure(job, [&] {
      using namespace torch::data::samplers;
      return job.shuffle ? construct<RandomSampler>(std::move(dataset), job)
                         : construct<SequentialSampler>(std::move(dataset), job);
    });
  });
}

}  // namespace

int main(int argc, char** argv) {
  return bench::report(argc, argv, "torch_data", "libtorch's torch::data, with threads.", run);
}
