// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What ends the program's children with the program, whatever state they are in: in an endless
// loop, with all signals blocked, or waiting for a lock that nobody will give back. It is a pipe
// that nobody writes to; when its only writer is gone, the kernel kills those that hold on to it.

#include <array>

namespace stoker::detail {

class Lifeline {
 public:
  // Program only, before the fork. Throws std::system_error if there are no descriptors.
  Lifeline();
  // Lets go: kills the children that are left. But where other processes have a copy of the
  // writing end (forked by the program meanwhile), when the last of them ends.
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // Program only, after the fork: children have the reading end from then on.
  void keep_writing_end();
  // Child only, first thing; a child's child again. Calls nothing that takes a lock. Ends the
  // process if the program is gone already. Where there is no /proc it does nothing.
  void hold();

 private:
  static void close_end(int& end);

  int read_ = -1;
  int write_ = -1;
  int held_ = -1;                // this process's own opening of the reading end
  std::array<char, 32> path_{};  // of the reading end
};

}  // namespace stoker::detail
