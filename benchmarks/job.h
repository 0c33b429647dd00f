// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bench {

/// One measurement, as its command line says: the same for every rival. The sizes come from
/// run.py, so that they are written down once and not in each rival's language.
struct Job {
  /// "stored": rows in memory; "tensors": a TensorDataset of such; "filled": made from the index.
  std::string dataset = "stored";
  std::string get = "view";  ///< how "stored" makes a sample: "view" or "select"
  int64_t samples = 100'000;
  int64_t width = 16;         ///< floats in a "stored" sample
  int64_t epoch_samples = 0;  ///< an epoch is only the first so many; 0: all
  double sleep_ms = 0;        ///< each "stored" sample takes so much longer
  int64_t batch_size = 64;
  bool shuffle = false;
  int64_t workers = 2;
  bool fork_each_epoch = false;
  std::string consumer = "take";  ///< "take" only receives a batch; "copy" copies all of it
  double warmup = 0.3;            ///< seconds between the first batch and the measured window
  double seconds = 1;             ///< length of the measured window
  int64_t min_epochs = 0;         ///< go on until so many epochs were completed
  bool meter_consumer = false;    ///< leave the consumer's own CPU time out of the main process's
  bool no_huge_pages = false;
  bool streaming_stores = false;  ///< how the limit writes; the loaders have their own ways

  bool copies() const { return consumer == "copy"; }
};

/// Reads the command line of the program `about`; for `--help` and mistakes it leaves the process.
/// Also switches huge pages off if asked to, which must come before the dataset is made.
Job job_from_command_line(int argc, char** argv, const std::string& about);

}  // namespace bench
