// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/lifeline.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>

namespace stoker::detail {

Lifeline::Lifeline() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::system_category(), "stoker: cannot make a pipe");
  }
  read_ = ends[0];
  write_ = ends[1];
  std::snprintf(path_.data(), path_.size(), "/proc/self/fd/%d", read_);
}

Lifeline::~Lifeline() {
  close_end(write_);
  close_end(read_);
}

void Lifeline::close_end(int& end) {
  if (end >= 0) close(end);
  end = -1;
}

void Lifeline::keep_writing_end() { close_end(read_); }

void Lifeline::hold() {
  close_end(write_);
  close_end(held_);  // the parent's, which tells that one
  // The owner of a signal belongs to an opening, so each process needs one.
  held_ = open(path_.data(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (held_ < 0) return;
  fcntl(held_, F_SETOWN, getpid());
  fcntl(held_, F_SETSIG, SIGKILL);
  fcntl(held_, F_SETFL, O_NONBLOCK | O_ASYNC);
  pollfd gone{held_, POLLIN, 0};
  if (poll(&gone, 1, 0) > 0 && (gone.revents & POLLHUP) != 0) _exit(0);
}

}  // namespace stoker::detail
