// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Everything a training program needs. Compare `torch.utils.data` (Python) and `torch/data.h`.
#include <stoker/collate.h>
#include <stoker/dataloader.h>
#include <stoker/dataset.h>
#include <stoker/datasets/chain.h>
#include <stoker/datasets/concat.h>
#include <stoker/datasets/stack.h>
#include <stoker/datasets/subset.h>
#include <stoker/datasets/tensor.h>
#include <stoker/datasets/transformed.h>
#include <stoker/device_prefetcher.h>
#include <stoker/options.h>
#include <stoker/pread_file.h>
#include <stoker/sample.h>
#include <stoker/sampler.h>
#include <stoker/sampler_of.h>
#include <stoker/samplers.h>
#include <stoker/state_dict.h>
#include <stoker/stats.h>
#include <stoker/worker.h>
