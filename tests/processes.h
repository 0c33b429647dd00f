// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What tests across processes need: memory that all of them see, a look at who lives, and a body
// that runs in a child.

#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

namespace stoker {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;  // one for all processes

// A T that processes forked from this one share with it. Copies are the same T.
template <class T>
class Shared {
 public:
  static_assert(std::is_trivially_destructible_v<T>);
  Shared() {
    void* place =
        mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    value_.reset(new (place) T{}, [](T* value) { munmap(value, sizeof(T)); });
  }
  T& operator*() const { return *value_; }
  T* operator->() const { return value_.get(); }

 private:
  std::shared_ptr<T> value_;
};

// False if the patience ran out.
template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds patience = 5s) {
  for (const auto deadline = Clock::now() + patience; Clock::now() < deadline;) {
    if (condition()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return condition();
}

inline void sleep_until(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::sleep_for(1ms);
}

struct ProcessEntry {
  pid_t parent = 0;
  char state = 0;
  std::string name;
};

// Of a process that is there; parent 0 otherwise.
inline ProcessEntry process_entry(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text, '\0');  // of a process that ends meanwhile: nothing, and no exception
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');  // the name may hold anything
  ProcessEntry entry;
  if (open == std::string::npos || close == std::string::npos) return entry;
  entry.name = text.substr(open + 1, close - open - 1);
  std::sscanf(text.c_str() + close + 1, " %c %d", &entry.state, &entry.parent);
  return entry;
}

// A zombie is gone: who should wait for it may be gone too, and the first process lazy.
inline bool is_alive(pid_t pid) {
  const char state = process_entry(pid).state;
  return state != 0 && state != 'Z' && state != 'X';
}

inline bool any_alive(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    if (is_alive(pid)) return true;
  }
  return false;
}

inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  DIR* proc = opendir("/proc");
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid > 0 && process_entry(pid).parent == parent && is_alive(pid)) children.push_back(pid);
  }
  closedir(proc);
  return children;
}

// The supervisors forked from this process, and all their workers, once there are that many.
struct LoaderProcesses {
  std::vector<pid_t> supervisors;
  std::vector<pid_t> workers;

  std::vector<pid_t> all() const {
    std::vector<pid_t> pids = supervisors;
    pids.insert(pids.end(), workers.begin(), workers.end());
    return pids;
  }
};

inline LoaderProcesses loader_processes(size_t num_workers) {
  LoaderProcesses found;
  eventually([&] {
    found = {children_of(getpid()), {}};
    for (const pid_t supervisor : found.supervisors) {
      for (const pid_t worker : children_of(supervisor)) found.workers.push_back(worker);
    }
    return found.workers.size() == num_workers;
  });
  return found;
}

inline std::string describe_end(int wait_status) {
  if (WIFSIGNALED(wait_status)) return "signal " + std::to_string(WTERMSIG(wait_status));
  return "exit " + std::to_string(WEXITSTATUS(wait_status));
}

inline int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Forks a child for the body. gtest does not see what fails there.
inline pid_t fork_child(const std::function<void()>& body) {
  std::cout.flush();
  std::fflush(stdout);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  body();
  std::fflush(nullptr);
  _exit(0);
}

// Runs the body in a child. Empty if it returned; else the exception's text, or how it ended.
inline std::string in_child(const std::function<void()>& body) {
  Shared<std::array<char, 1024>> text;  // zeros
  const pid_t pid = fork_child([&] {
    try {
      body();
    } catch (const std::exception& error) {
      std::snprintf(text->data(), text->size(), "%s", error.what());
      _exit(1);
    }
  });
  const int status = wait_for(pid);
  if (text->front() != '\0') return text->data();
  return status == 0 ? "" : describe_end(status);
}

// For bodies that run in a child, where gtest's assertions would not be seen.
inline void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}

}  // namespace stoker
