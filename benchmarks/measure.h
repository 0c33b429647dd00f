// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "job.h"

namespace bench {

/// Receives a batch; false when it has seen enough, and the epoch is to be left.
using Consume = std::function<bool(const at::Tensor& data, const at::Tensor& labels)>;
/// Runs one epoch of a loader that it keeps alive.
using RunEpoch = std::function<void(const Consume&)>;

/// Times a loader that `construct` makes: construction to first batch, the gaps between epochs,
/// and in a window of time the samples per second and the CPU time of the main process; then the
/// private memory of its workers. Checks all data that came.
nlohmann::json measure(const Job& job, const std::function<RunEpoch()>& construct);

/// The main function of a rival: measures what `run` does with the job and prints the result.
int report(int argc, char** argv, const char* rival, const char* about,
           const std::function<nlohmann::json(const Job&)>& run);

}  // namespace bench
