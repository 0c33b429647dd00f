// SPDX-License-Identifier: BSD-3-Clause
#include "job.h"

#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace bench {

namespace {

void add_dataset_options(CLI::App& app, Job& job) {
  app.add_option(
         "--dataset", job.dataset,
         "stored: rows in memory; tensors: a TensorDataset of such; filled: float[3,224,224]")
      ->check(CLI::IsMember({"stored", "tensors", "filled"}));
  app.add_option("--get", job.get, "How a stored sample is made: from_blob, or data[i]")
      ->check(CLI::IsMember({"view", "select"}));
  app.add_option("--samples", job.samples)->check(CLI::PositiveNumber);
  app.add_option("--width", job.width, "Floats in a stored sample")->check(CLI::PositiveNumber);
  app.add_option("--epoch-samples", job.epoch_samples, "Samples in an epoch; 0: all")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--sleep-ms", job.sleep_ms, "Each stored sample takes so much longer")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--no-huge-pages", job.no_huge_pages, "Keep all memory in 4 KB pages");
}

void add_loader_options(CLI::App& app, Job& job) {
  app.add_option("--batch-size", job.batch_size)->check(CLI::PositiveNumber);
  app.add_flag("--shuffle", job.shuffle);
  app.add_option("--workers", job.workers)->check(CLI::NonNegativeNumber);
  app.add_flag("--fork-each-epoch", job.fork_each_epoch, "Workers do not persist");
}

void add_measuring_options(CLI::App& app, Job& job) {
  app.add_option("--consumer", job.consumer, "take: only receive a batch; copy: copy all of it")
      ->check(CLI::IsMember({"take", "copy"}));
  app.add_option("--warmup", job.warmup, "Seconds before the measured window")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seconds", job.seconds, "Length of the measured window")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--min-epochs", job.min_epochs, "Go on until so many epochs were completed")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--meter-consumer", job.meter_consumer,
               "Leave the consumer's own CPU time out of the main process's");
  app.add_flag("--streaming-stores", job.streaming_stores, "The limit only: write past the caches");
}

}  // namespace

Job job_from_command_line(int argc, char** argv, const std::string& about) {
  CLI::App app(about + " Makes one measurement and prints it as one line of JSON.");
  app.option_defaults()->always_capture_default();
  Job job;
  add_dataset_options(app, job);
  add_loader_options(app, job);
  add_measuring_options(app, job);
  try {
    app.parse(argc, argv);
    if (job.epoch_samples == 0) job.epoch_samples = job.samples;
    if (job.epoch_samples > job.samples || (job.shuffle && job.epoch_samples != job.samples)) {
      throw CLI::ValidationError("--epoch-samples", "must be all samples if shuffled, and no more");
    }
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  if (job.no_huge_pages && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) {
    std::perror("prctl(PR_SET_THP_DISABLE)");
    std::exit(EXIT_FAILURE);
  }
  return job;
}

}  // namespace bench
