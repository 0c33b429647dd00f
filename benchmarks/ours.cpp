// SPDX-License-Identifier: BSD-3-Clause
#include <stoker/dataloader.h>
#include <stoker/datasets/tensor.h>

#include <memory>
#include <utility>

#include "measure.h"
#include "workloads.h"

namespace {

stoker::DataLoaderOptions options_of(const bench::Job& job) {
  stoker::DataLoaderOptions options;
  options.batch_size = job.batch_size;
  options.shuffle = job.shuffle;
  options.num_workers = job.workers;
  options.persistent_workers = !job.fork_each_epoch;
  if (job.epoch_samples != job.samples) {
    options.sampler = std::make_shared<stoker::SequentialSampler>(job.epoch_samples);
  }
  return options;
}

bool pass_on(const torch::data::Example<>& batch, const bench::Consume& consume) {
  return consume(batch.data, batch.target);
}
bool pass_on(const stoker::TensorDataset<2>::Sample& batch, const bench::Consume& consume) {
  return consume(batch[0], batch[1]);
}

template <class Dataset>
bench::RunEpoch construct(Dataset dataset, const bench::Job& job) {
  auto loader = std::make_shared<stoker::DataLoader<Dataset>>(std::move(dataset), options_of(job));
  return [loader](const bench::Consume& consume) {
    for (const auto& batch : *loader) {
      if (!pass_on(batch, consume)) break;
    }
  };
}

nlohmann::json run(const bench::Job& job) {
  if (job.dataset == "tensors") {
    const bench::Rows rows(job.samples, job.width);
    return bench::measure(
        job, [&] { return construct(stoker::TensorDataset(rows.data, rows.labels), job); });
  }
  return bench::with_dataset(job, [&](auto dataset) {
    return bench::measure(job, [&] { return construct(std::move(dataset), job); });
  });
}

}  // namespace

int main(int argc, char** argv) {
  return bench::report(argc, argv, "ours", "stoker's DataLoader, with forked workers.", run);
}
