// SPDX-License-Identifier: BSD-3-Clause
#include "loader/worker_report.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <sstream>

namespace stoker::detail {

namespace {

// Of a worker that is not forked yet the pid is 0.
std::string name(int64_t id, int64_t pid) {
  if (pid == 0) return "worker " + std::to_string(id);
  return "worker " + std::to_string(id) + " (pid " + std::to_string(pid) + ")";
}

std::string at_index(std::optional<int64_t> index) {
  return index ? " at sample index " + std::to_string(*index) : "";
}

std::string whereabouts(const Busy& worker) {
  switch (worker.at) {
    case Busy::At::kSample:
      return " is" + at_index(static_cast<int64_t>(worker.index));
    case Busy::At::kStart:
      return " has not started";
    case Busy::At::kInitFn:
      return " is in worker_init_fn";
    case Busy::At::kOpenInWorker:
      return " is in open_in_worker";
  }
  return "";
}

// A worker's code may have written over the end of it.
template <size_t N>
std::string text_of(const char (&text)[N]) {
  return {text, strnlen(text, N)};
}

// Of a worker that was killed by SIGKILL.
std::string memory_hint(const WorkerRecord& worker) {
  const std::string available = megabytes(worker.memory_available.load());
  const uint64_t limit = worker.memory_limit.load();
  switch (worker.oom_killer.load()) {
    case OomKiller::kAtWork:
      return "; the kernel's OOM killer was at work (" +
             (limit == ~uint64_t{0} ? "no memory limit" : "memory limit " + megabytes(limit)) +
             ", now available " + available + "): use fewer workers or smaller samples";
    case OomKiller::kIdle:
      return "; nothing says that memory ran out (the OOM killer was idle, " + available +
             " is available): somebody sent the signal";
    case OomKiller::kUnknown:
      break;
  }
  return "; if nobody killed it, the machine or container ran out of memory: use fewer workers or "
         "smaller samples";
}

std::string hint(int signal, const WorkerRecord& worker) {
  switch (signal) {
    case SIGKILL:
      return memory_hint(worker);
    case SIGBUS:
      return "; a file it had mapped was cut short, or memory ran out";
    case SIGSEGV:
    case SIGABRT:
      return "; run with num_workers = 0 under a debugger to see where";
    default:
      return "";
  }
}

std::string last_word(Final final) {
  switch (final) {
    case Final::kRestartsSpent:
      return "; it was not replaced, since max_restarts others were in this epoch already";
    case Final::kKilledTwice:
      return "; it was not replaced, since the same sample had ended a worker before";
    case Final::kBatchKilledTwice:
      return "; it was not replaced, since the same batch had ended a worker before";
    case Final::kCondemned:
      return "; the same sample had ended a worker before";
    case Final::kNoRestarts:
      return "; it was not replaced, since max_restarts is 0";
  }
  return "";
}

}  // namespace

WorkerError report_failure(const Failure& failure) {
  WorkerError::Facts facts;
  facts.worker_id = failure.worker_id;
  facts.pid = failure.pid;
  if (failure.index) facts.index = static_cast<int64_t>(*failure.index);
  std::string text;
  if (failure.type_name.empty()) {
    text = failure.text;
  } else {
    facts.type_name = failure.type_name;
    text = "stoker: " + name(failure.worker_id.value_or(0), failure.pid) + " caught " +
           failure.type_name + at_index(facts.index) + ": " + failure.text;
  }
  return {text, std::move(facts)};
}

std::exception_ptr failure_of(Slot slot, bool with_workers) {
  try {
    const Failure failure = load_failure(slot, slot.header().failure);
    if (with_workers) return std::make_exception_ptr(report_failure(failure));
    return std::make_exception_ptr(std::runtime_error(failure.text));
  } catch (...) {
    return std::current_exception();
  }
}

WorkerError report_init_failure(uint32_t id, const WorkerRecord& worker) {
  WorkerError::Facts facts;
  facts.worker_id = id;
  facts.pid = worker.pid.load();
  facts.type_name = text_of(worker.type_name);
  const bool opened = worker.setup.load() == Setup::kOpenInWorker;
  return {std::string("stoker: ") + (opened ? "open_in_worker" : "worker_init_fn") + " of " +
              name(id, *facts.pid) + " threw " + *facts.type_name + ": " + text_of(worker.text),
          std::move(facts)};
}

WorkerError report_death(uint32_t id, const WorkerRecord& worker, std::optional<size_t> index) {
  WorkerError::Facts facts;
  facts.worker_id = id;
  facts.pid = worker.pid.load();
  if (index) facts.index = static_cast<int64_t>(*index);
  const int status = worker.wait_status.load();
  std::ostringstream text;
  text << "stoker: " << name(id, *facts.pid);
  if (const double seconds = worker.overdue.load(); seconds > 0) {
    facts.signal = SIGKILL;
    text << " took longer than the sample_timeout of " << seconds << " s" << at_index(facts.index)
         << " and was killed";
  } else if (WIFSIGNALED(status)) {
    facts.signal = WTERMSIG(status);
    text << " was killed by signal " << *facts.signal << " (" << strsignal(*facts.signal) << ")"
         << at_index(facts.index) << hint(*facts.signal, worker);
  } else {
    facts.exit_status = WEXITSTATUS(status);
    text << " exited with status " << *facts.exit_status << at_index(facts.index)
         << "; code that a dataset calls must not end the process";
  }
  text << last_word(worker.final.load());
  return {text.str(), std::move(facts)};
}

WorkerError report_no_fork(uint32_t id, const WorkerRecord& worker) {
  WorkerError::Facts facts;
  facts.worker_id = id;
  return {"stoker: worker " + std::to_string(id) +
              " could not be forked: " + std::strerror(worker.wait_status.load()) +
              "; use fewer workers, or raise the limit of processes or memory",
          std::move(facts)};
}

WorkerError report_lost_supervisor(int64_t pid) {
  WorkerError::Facts facts;
  facts.pid = pid;
  return {"stoker: the supervisor of the workers (pid " + std::to_string(pid) +
              ") is gone, and the workers with it; was it killed?",
          std::move(facts)};
}

WorkerError report_not_started(std::optional<uint32_t> worker, int64_t pid, double seconds,
                               int tries) {
  WorkerError::Facts facts;
  facts.worker_id = worker;
  facts.pid = pid;
  std::ostringstream text;
  text << "stoker: "
       << (worker ? name(*worker, pid)
                  : "the supervisor of the workers (pid " + std::to_string(pid) + ")")
       << " did not start within " << seconds << " s, and was forked " << tries
       << " times; another thread of the program probably holds a lock whenever it forks: make "
          "loaders before threads are started";
  return {text.str(), std::move(facts)};
}

std::runtime_error report_no_memory(uint32_t kept, uint64_t batch_bytes, uint64_t limit) {
  std::ostringstream text;
  text << "stoker: no memory for one more batch of " << megabytes(batch_bytes)
       << ": shared_memory_limit is " << megabytes(limit) << ", and the program keeps " << kept
       << " batches; copy (clone) what must be kept, use a smaller batch_size, or raise "
          "shared_memory_limit (and `ulimit -v`)";
  return std::runtime_error(text.str());
}

WorkerError report_timeout(double seconds, const std::vector<Busy>& busy) {
  WorkerError::Facts facts;
  std::ostringstream text;
  text << "stoker: no batch within the timeout of " << seconds << " s";
  if (!busy.empty()) {
    facts.worker_id = busy.front().id;
    if (busy.front().pid > 0) facts.pid = busy.front().pid;
    if (busy.front().at == Busy::At::kSample) {
      facts.index = static_cast<int64_t>(busy.front().index);
    }
  }
  for (const Busy& one : busy) text << "; " << name(one.id, one.pid) << whereabouts(one);
  return {text.str(), std::move(facts)};
}

}  // namespace stoker::detail
