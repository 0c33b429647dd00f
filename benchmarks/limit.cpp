// SPDX-License-Identifier: BSD-3-Clause
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "batch_check.h"
#include "fill_workers.h"
#include "measure.h"
#include "process_memory.h"
#include "workloads.h"

namespace bench {

namespace {

using Clock = std::chrono::steady_clock;

std::vector<int64_t> epoch_order(const Job& job) {
  std::vector<int64_t> order(static_cast<size_t>(job.epoch_samples));
  std::iota(order.begin(), order.end(), 0);
  if (!job.shuffle) return order;
  const torch::Tensor shuffled = torch::randperm(job.epoch_samples, torch::kLong);
  const auto* first = shuffled.const_data_ptr<int64_t>();
  return {first, first + job.epoch_samples};
}

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

template <class Dataset>
void check_all(const FillWorkers<Dataset>& workers, const Job& job) {
  int64_t label_sum = 0;
  int64_t samples = 0;
  for (int64_t batch = 0; batch < workers.end_batch(); ++batch) {
    const auto first = workers.order().begin() + workers.first_sample(batch);
    label_sum = std::accumulate(first, first + workers.rows(batch), label_sum);
    samples += workers.rows(batch);
  }
  if (label_sum != workers.label_sum() || samples != workers.samples_filled()) {
    throw std::runtime_error("wrong data: the labels do not add up");
  }
  const SharedSlots& slots = workers.slots();
  for (int64_t slot = 0; slot < slots.count(); ++slot) {
    if (workers.batch_in(slot) < 0) continue;
    BatchCheck check(job.epoch_samples);
    const int64_t rows = workers.rows(workers.batch_in(slot));
    check.batch(slots.data(slot), slots.labels(slot), rows, slots.width());
  }
}

// No consumer: the processes fill slots as fast as they can, and are only watched.
template <class Dataset>
nlohmann::json fill_only(FillWorkers<Dataset>& workers, const Job& job) {
  const auto begun = Clock::now();
  workers.fork_all();
  workers.wait_for_first_batch();
  nlohmann::json result;
  const std::chrono::duration<double, std::milli> first_batch = workers.first_batch_time() - begun;
  result["first_batch_ms"] = first_batch.count();

  sleep_seconds(job.warmup);
  const int64_t samples_before = workers.samples_filled();
  const auto from = Clock::now();
  do {
    sleep_seconds(std::max(job.seconds, 0.001));
  } while (workers.samples_filled() < job.min_epochs * job.epoch_samples);
  const int64_t samples = workers.samples_filled() - samples_before;
  const std::chrono::duration<double> elapsed = Clock::now() - from;
  if (job.seconds > 0) result["samples_per_s"] = static_cast<double>(samples) / elapsed.count();

  result["worker_private_kb"] = worker_private_kb();
  if (!workers.stop()) throw std::runtime_error("a worker failed");
  check_all(workers, job);
  return result;
}

// One epoch, each batch handed to the consumer out of its slot.
template <class Dataset>
void consume_epoch(FillWorkers<Dataset>& workers, const Job& job, int64_t& next,
                   const Consume& consume) {
  const SharedSlots& slots = workers.slots();
  const int64_t width = slots.width();
  for (int64_t i = 0; i < workers.epoch_batches(); ++i, ++next) {
    const int64_t slot = next % slots.count();
    if (job.workers == 0) {
      workers.fill(next, slot);
    } else {
      workers.wait_until_filled(next);
    }
    const int64_t rows = workers.rows(next);
    const auto data = torch::from_blob(slots.data(slot), {rows, width});
    const auto labels = torch::from_blob(slots.labels(slot), {rows}, torch::kLong);
    const bool go_on = consume(data, labels);
    workers.set_free(next);
    if (!go_on) return;
  }
}

// What one writes without a loader, in one process.
RunEpoch slice_by_hand(const Rows& rows, const Job& job) {
  return [&](const Consume& consume) {
    const int64_t n = rows.labels.numel();
    const auto order =
        job.shuffle ? torch::randperm(n, torch::kLong) : torch::arange(n, torch::kLong);
    for (int64_t first = 0; first < n; first += job.batch_size) {
      const auto indices = order.slice(0, first, std::min(first + job.batch_size, n));
      if (!consume(rows.data.index_select(0, indices), rows.labels.index_select(0, indices))) break;
    }
  };
}

nlohmann::json run(const Job& job) {
  if (job.dataset == "tensors") {
    const Rows rows(job.samples, job.width);
    return measure(job, [&] { return slice_by_hand(rows, job); });
  }
  return with_dataset(job, [&](auto dataset) {
    const int64_t width = dataset.get(0).data.numel();
    using Workers = FillWorkers<decltype(dataset)>;
    auto workers = std::make_shared<Workers>(dataset, job, epoch_order(job), width);
    if (job.workers > 0 && !job.copies()) return fill_only(*workers, job);
    return measure(job, [&]() -> RunEpoch {
      workers->fork_all();
      return [&, next = int64_t{0}](const Consume& consume) mutable {
        consume_epoch(*workers, job, next, consume);
      };
    });
  });
}

}  // namespace

}  // namespace bench

int main(int argc, char** argv) {
  return bench::report(argc, argv, "limit",
                       "The machine's limit: plain forked processes fill shared memory.",
                       bench::run);
}
