// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Libraries with thread pools (ATen, OpenMP, MKL, OpenBLAS, OpenCV) are told to use one thread in a
// worker. A pool that the program started does not survive the fork: work given to it would wait
// for ever. And with a worker per core, more threads would only be in each other's way.

#include <string>
#include <utility>
#include <vector>

namespace stoker::detail {

class WorkerThreads {
 public:
  // Program only, before the fork: finds what the child has to call, and makes its environment.
  // Another thread may hold the locks of the dynamic linker and of setenv when the process is
  // forked, so a child must not need them. Nor that of `atexit`, which libraries need for what they
  // make at their first call: so they make it here.
  WorkerThreads();
  // Child only, before any of the user's code. This object must live as long as the child.
  void limit();

 private:
  struct Call {
    void (*function)(int);
    int argument;
  };

  std::vector<Call> calls_;
  std::vector<std::string> variables_;
  std::vector<char*> environment_;  // the program's but for `variables_`; ends in a null pointer
};

}  // namespace stoker::detail
