// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Everything a training program needs. Compare `torch.utils.data` (Python) and `torch/data.h`.
#include <stoker/dataloader.h>
#include <stoker/dataset.h>
#include <stoker/device_prefetcher.h>
#include <stoker/options.h>
#include <stoker/sample.h>
#include <stoker/sampler.h>
#include <stoker/state_dict.h>
#include <stoker/stats.h>
#include <stoker/worker.h>
