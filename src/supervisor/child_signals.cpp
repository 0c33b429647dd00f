// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/child_signals.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>

#include "memory/failure.h"

namespace stoker::detail {

namespace {

bool is_any_of(int signal, std::initializer_list<int> signals) {
  return std::find(signals.begin(), signals.end(), signal) != signals.end();
}

}  // namespace

void settle_signals() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    const bool own_fault =
        is_any_of(signal, {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGCHLD});
    const bool to_the_group =
        is_any_of(signal, {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2});
    const bool handled = action.sa_handler != SIG_DFL;
    if (!handled && !to_the_group) continue;
    action.sa_handler = own_fault ? SIG_DFL : SIG_IGN;
    action.sa_flags = 0;
    sigaction(signal, &action, nullptr);
  }
  std::signal(SIGCHLD, SIG_DFL);
}

void end_by_exception() {
  if (const std::exception_ptr error = std::current_exception()) {
    const Failure failure = describe_exception(error);
    std::fprintf(stderr, "stoker: process %d is ended by %s, which nobody caught: %s\n",
                 static_cast<int>(getpid()), failure.type_name.c_str(), failure.text.c_str());
  }
  std::abort();
}

}  // namespace stoker::detail
