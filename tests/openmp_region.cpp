// SPDX-License-Identifier: BSD-3-Clause
#include "openmp_region.h"

#include <omp.h>

namespace stoker {

int64_t parallel_sum(int64_t n) {
  int64_t sum = 0;
#pragma omp parallel for reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += i;
  return sum;
}

int threads_of_region(int wanted) {
  int threads = 0;
  if (wanted == 0) wanted = omp_get_max_threads();
#pragma omp parallel num_threads(wanted)
  {
#pragma omp single
    threads = omp_get_num_threads();
  }
  return threads;
}

}  // namespace stoker
