// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/worker_threads.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace stoker::detail {

namespace {

struct Setting {
  const char* symbol;
  int value;
};

// For libraries that are loaded already. ATen tells its own copies of these itself.
constexpr std::array kSettings{
    Setting{"omp_set_num_threads", 1},
    // So that not even `#pragma omp parallel num_threads(4)` waits for threads that are not there.
    Setting{"omp_set_max_active_levels", 0},
    Setting{"MKL_Set_Num_Threads", 1},
    Setting{"openblas_set_num_threads", 1},
    // cv::setNumThreads. 0 means: do not use the pool; 1 would join its threads, which are gone.
    Setting{"_ZN2cv13setNumThreadsEi", 0},
};

// For those that the user's code loads later, and for programs that it starts.
constexpr std::array<std::string_view, 5> kVariables{"OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1",
                                                     "OPENBLAS_NUM_THREADS=1", "BLIS_NUM_THREADS=1",
                                                     "OPENCV_FOR_THREADS_NUM=1"};

bool is_replaced(std::string_view entry) {
  return std::any_of(kVariables.begin(), kVariables.end(), [&](std::string_view variable) {
    return entry.starts_with(variable.substr(0, variable.find('=') + 1));
  });
}

// The first at::set_num_threads of a process makes a thread pool (caffe2's, for QNNPACK), and
// registers its destructor and a fork handler, both under locks of libc. The pool keeps the size
// that it is made with: with 1, neither the program nor a child gets threads for it. Once: a thread
// that comes to its first parallel loop between the two calls keeps to one thread.
void make_pool() {
  static const bool made = [] {
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    at::set_num_threads(threads);
    return true;
  }();
  static_cast<void>(made);
}

}  // namespace

WorkerThreads::WorkerThreads() : variables_(kVariables.begin(), kVariables.end()) {
  make_pool();
  for (const Setting& setting : kSettings) {
    void* found = dlsym(RTLD_DEFAULT, setting.symbol);
    if (found != nullptr) calls_.push_back({reinterpret_cast<void (*)(int)>(found), setting.value});
  }
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!is_replaced(*entry)) environment_.push_back(*entry);
  }
  for (std::string& variable : variables_) environment_.push_back(variable.data());
  environment_.push_back(nullptr);
}

void WorkerThreads::limit() {
  environ = environment_.data();
  at::set_num_threads(1);
  try {
    at::set_num_interop_threads(1);
  } catch (const c10::Error&) {
    // The program has set it, or used them. at::launch must not be called in workers then.
  }
  for (const Call& call : calls_) call.function(call.argument);
}

}  // namespace stoker::detail
