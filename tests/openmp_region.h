// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Code that uses OpenMP, as a dataset or a training program may.

#include <cstdint>

namespace stoker {

// 0 + .. + (n - 1), by all threads that a parallel region gets.
int64_t parallel_sum(int64_t n);
// How many threads a parallel region gets that asks for `wanted`; 0 asks for none in particular.
int threads_of_region(int wanted);

}  // namespace stoker
