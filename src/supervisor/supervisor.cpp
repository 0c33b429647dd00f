// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/supervisor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "memory/futex.h"
#include "supervisor/available_memory.h"
#include "supervisor/child_signals.h"
#include "supervisor/sample_clock.h"
#include "supervisor/worker_threads.h"

namespace stoker::detail {

namespace {

using Clock = std::chrono::steady_clock;

// How long workers get to finish their sample and flush their output.
constexpr auto kGrace = std::chrono::milliseconds(100);
// .. and to close their dataset, once they have come to that
constexpr auto kClosingGrace = std::chrono::seconds(5);

int watch_process(pid_t pid) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
#else
  return -1;
#endif
}

// The supervisor process.
class Watch {
 public:
  Watch(Control& control, SupervisorLimits limits, Lifeline& lifeline, int socket, pid_t program,
        const sigset_t& program_mask, const Supervisor::RunWorker& run)
      : control_(control),
        lifeline_(lifeline),
        limits_(limits),
        replacements_(control, limits.replacements),
        run_worker_(run),
        socket_(socket),
        self_(getpid()),
        children_(control.num_workers()),
        oom_kills_(memory_signs().oom_kills),
        worker_mask_(program_mask) {
    prctl(PR_SET_NAME, "stoker superv.", 0, 0, 0);
    if (limits.sample_timeout.count() > 0) {
      clock_.emplace(control.num_workers(), limits.sample_timeout);
    }
    sigset_t deaths;
    sigemptyset(&deaths);
    sigaddset(&deaths, SIGCHLD);
    sigprocmask(SIG_SETMASK, &worker_mask_, nullptr);
    sigprocmask(SIG_BLOCK, &deaths, nullptr);
    deaths_ = signalfd(-1, &deaths, SFD_CLOEXEC | SFD_NONBLOCK);
    program_ = watch_process(program);
    // It may have ended before it could be watched.
    if (getppid() != program) _exit(0);
  }

  [[noreturn]] void run() {
    control_.supervised().store(1, std::memory_order_release);
    for (uint32_t id = 0; id < control_.num_workers(); ++id) spawn(id, false);
    const int between_looks = clock_ ? static_cast<int>(clock_->interval().count()) : -1;
    while (wait_for_death(between_looks)) {
      reap();
      kill_overdue();
    }
    end_workers();
    _exit(0);
  }

 private:
  // A worker, as far as the supervisor knows.
  struct Child {
    pid_t pid = 0;  // 0: none that lives
    bool overdue = false;
  };

  void spawn(uint32_t id, bool replacement) {
    WorkerRecord& worker = control_.worker(id);
    const pid_t pid = fork();
    if (pid == 0) become_worker(id, replacement);
    if (pid > 0) {
      children_[id] = {pid};
      worker.pid.store(pid, std::memory_order_relaxed);
    } else {
      worker.wait_status.store(errno, std::memory_order_relaxed);
      worker.state.store(WorkerState::kNoFork, std::memory_order_release);
      report();
    }
  }

  [[noreturn]] void become_worker(uint32_t id, bool replacement) noexcept {
    lifeline_.hold();
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != self_) _exit(0);
    close(socket_);
    close(deaths_);
    if (program_ >= 0) close(program_);
    sigprocmask(SIG_SETMASK, &worker_mask_, nullptr);
    // The supervisor stores the pid too; whoever comes first.
    WorkerRecord& me = control_.worker(id);
    me.pid.store(getpid(), std::memory_order_relaxed);
    me.state.store(WorkerState::kRunning, std::memory_order_release);
    run_worker_(id, replacement);
    _exit(0);
  }

  // Sleeps until a worker died, or so long; false when the program is gone or lets go.
  bool wait_for_death(int at_most_ms) {
    std::array<pollfd, 3> watched{
        {{deaths_, POLLIN, 0}, {socket_, POLLIN, 0}, {program_, POLLIN, 0}}};
    for (;;) {
      const int ready = poll(watched.data(), watched.size(), at_most_ms);
      if (ready < 0 && errno == EINTR) continue;
      return watched[1].revents == 0 && watched[2].revents == 0;
    }
  }

  void reap() {
    signalfd_siginfo info;
    while (read(deaths_, &info, sizeof info) > 0) {
    }
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto child = std::find_if(children_.begin(), children_.end(),
                                      [pid](const Child& one) { return one.pid == pid; });
      if (child == children_.end()) continue;
      const bool overdue = child->overdue;
      *child = {};
      on_death(static_cast<uint32_t>(child - children_.begin()), pid, status, overdue);
    }
  }

  void on_death(uint32_t id, pid_t pid, int status, bool overdue) {
    WorkerRecord& worker = control_.worker(id);
    worker.pid.store(pid, std::memory_order_relaxed);
    worker.wait_status.store(status, std::memory_order_relaxed);
    const bool failed = worker.state.load(std::memory_order_acquire) == WorkerState::kInitFailed;
    const bool in_use = control_.stop().load() == 0 && !failed;
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (in_use && killed && !overdue) note_memory(worker);
    if (in_use && replacements_.allow(worker)) {
      control_.disown(id);
      control_.restarts().fetch_add(1, std::memory_order_relaxed);
      spawn(id, true);
      // It may have died between completing a batch and telling so.
      wake_main();
      return;
    }
    if (!failed) worker.state.store(WorkerState::kDead, std::memory_order_release);
    report();
  }

  // Each kill by the kernel explains one death.
  void note_memory(WorkerRecord& worker) {
    const MemorySigns signs = memory_signs();
    worker.memory_limit.store(signs.limit, std::memory_order_relaxed);
    worker.memory_available.store(signs.available, std::memory_order_relaxed);
    if (!signs.oom_kills || !oom_kills_) return;
    const bool at_work = *signs.oom_kills > *oom_kills_;
    if (at_work) ++*oom_kills_;
    worker.oom_killer.store(at_work ? OomKiller::kAtWork : OomKiller::kIdle,
                            std::memory_order_relaxed);
  }

  void kill_overdue() {
    if (!clock_) return;
    clock_->look(Clock::now().time_since_epoch());
    for (uint32_t id = 0; id < control_.num_workers(); ++id) {
      WorkerRecord& worker = control_.worker(id);
      const std::chrono::nanoseconds since(worker.progress.since.load(std::memory_order_relaxed));
      if (since.count() == 0 || !clock_->is_overdue(id, since)) continue;
      Child& child = children_[id];
      if (child.pid == 0 || child.overdue) continue;
      child.overdue = true;
      worker.overdue.store(limits_.sample_timeout.count());
      kill(child.pid, SIGKILL);
    }
  }

  void report() {
    control_.troubles().fetch_add(1, std::memory_order_release);
    wake_main();
  }

  void wake_main() {
    control_.raise_event();
    futex_wake(control_.events_word(), INT_MAX);
  }

  bool all_reaped() {
    reap();
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.pid == 0; });
  }

  void end_workers() {
    control_.stop().store(1);
    const auto now = Clock::now();
    wait_for_end_until(now + kGrace);
    kill_workers(/*closing_too=*/false);
    wait_for_end_until(now + kClosingGrace);
    kill_workers(/*closing_too=*/true);
    while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
    }
  }

  void wait_for_end_until(Clock::time_point deadline) {
    while (!all_reaped() && Clock::now() < deadline) {
      // Again and again: a worker may have been about to fall asleep.
      futex_wake(control_.published_word(), INT_MAX);
      pollfd death{deaths_, POLLIN, 0};
      poll(&death, 1, 5);
    }
  }

  void kill_workers(bool closing_too) {
    for (uint32_t id = 0; id < control_.num_workers(); ++id) {
      const bool closing = control_.worker(id).state.load() == WorkerState::kClosing;
      if (children_[id].pid > 0 && (closing_too || !closing)) kill(children_[id].pid, SIGKILL);
    }
  }

  Control& control_;
  Lifeline& lifeline_;
  SupervisorLimits limits_;
  Replacements replacements_;
  const Supervisor::RunWorker& run_worker_;
  int socket_;
  int deaths_ = -1;
  int program_ = -1;
  pid_t self_;
  std::vector<Child> children_;        // by worker
  std::optional<SampleClock> clock_;   // if there is a sample_timeout
  std::optional<uint64_t> oom_kills_;  // those before the workers, and those that explain a death
  sigset_t worker_mask_;
};

// Another thread may hold the lock of torch's default generator at this moment. Workers seed that
// one, and their copy of the lock would stay locked.
pid_t fork_without_generator_in_use() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return fork();
}

}  // namespace

Supervisor::Supervisor(Control& control, SupervisorLimits limits, const RunWorker& run_worker)
    : control_(control), owner_(getpid()) {
  WorkerThreads threads;
  std::array<int, 2> sockets{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    throw std::system_error(errno, std::system_category(), "stoker: cannot make a socket pair");
  }
  // Whatever is buffered would be printed twice.
  std::cout.flush();
  std::fflush(stdout);
  // Until the child has settled its signals, none may come to it.
  sigset_t all, mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  pid_ = fork_without_generator_in_use();
  if (pid_ == 0) {
    [&]() noexcept {
      lifeline_.hold();
      std::set_terminate(end_by_exception);
      settle_signals();
      close(sockets[0]);
      threads.limit();
      Watch(control, limits, lifeline_, sockets[1], owner_, mask, run_worker).run();
    }();
  }
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  lifeline_.keep_writing_end();
  close(sockets[1]);
  socket_ = sockets[0];
  if (pid_ < 0) {
    close(socket_);
    throw std::system_error(error, std::system_category(),
                            "stoker: cannot fork the supervisor of the workers");
  }
  process_ = watch_process(pid_);
}

bool Supervisor::alive() const { return !ends_within(0); }

// Without a pidfd its end of the socket tells, unless another process has a copy of it.
bool Supervisor::ends_within(int milliseconds) const {
  pollfd end{process_ >= 0 ? process_ : socket_, POLLIN, 0};
  return poll(&end, 1, milliseconds) > 0;
}

bool Supervisor::any_closing() const {
  for (uint32_t id = 0; id < control_.num_workers(); ++id) {
    if (control_.worker(id).state.load() == WorkerState::kClosing) return true;
  }
  return false;
}

// A program that waits for any child, or ignores SIGCHLD, has perhaps reaped it already, and its
// number may be another process's. A pidfd stays its own.
void Supervisor::kill_it() const {
#ifdef SYS_pidfd_send_signal
  if (process_ >= 0) {
    syscall(SYS_pidfd_send_signal, process_, SIGKILL, nullptr, 0);
    return;
  }
#endif
  kill(pid_, SIGKILL);
}

void Supervisor::reap() const {
  constexpr auto kPidFd = static_cast<idtype_t>(3);  // P_PIDFD; older headers lack it
  siginfo_t info;
  const auto wait = [&] {
    return process_ >= 0 ? waitid(kPidFd, static_cast<id_t>(process_), &info, WEXITED)
                         : waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED);
  };
  while (wait() < 0 && errno == EINTR) {
  }
}

Supervisor::~Supervisor() {
  if (getpid() != owner_) {  // a child that the program forked
    close(socket_);
    if (process_ >= 0) close(process_);
    return;
  }
  control_.stop().store(1);
  futex_wake(control_.published_word(), INT_MAX);
  shutdown(socket_, SHUT_WR);
  // If it cannot end (stopped by a debugger, say), it is killed, and the kernel kills its workers.
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  while (!ends_within(50)) {
    if (Clock::now() >= deadline + (any_closing() ? kClosingGrace : std::chrono::seconds(0))) break;
  }
  if (alive()) kill_it();
  reap();
  close(socket_);
  if (process_ >= 0) close(process_);
}

}  // namespace stoker::detail
