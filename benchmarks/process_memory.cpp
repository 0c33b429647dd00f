// SPDX-License-Identifier: BSD-3-Clause
#include "process_memory.h"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>

namespace bench {

namespace {

using Children = std::multimap<pid_t, pid_t>;

// The fourth field of /proc/PID/stat; the second, a name in brackets, may hold anything.
pid_t parent_of(const std::filesystem::path& process) {
  std::ifstream file(process / "stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto bracket = text.rfind(')');
  if (bracket == std::string::npos) return 0;  // it ended meanwhile
  std::istringstream rest(text.substr(bracket + 1));
  char state = 0;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
}

Children all_processes() {
  Children children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto end = std::from_chars(name.data(), name.data() + name.size(), pid).ptr;
    if (end == name.data() + name.size()) children.emplace(parent_of(entry.path()), pid);
  }
  return children;
}

void collect_leaves(const Children& children, pid_t pid, std::vector<pid_t>& leaves) {
  const auto [begin, end] = children.equal_range(pid);
  if (begin == end) leaves.push_back(pid);
  for (auto child = begin; child != end; ++child) collect_leaves(children, child->second, leaves);
}

int64_t private_dirty_kb(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps");
  int64_t total = 0;
  bool private_mapping = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    std::string second;
    words >> first >> second;
    if (first.find('-') != std::string::npos && second.size() == 4) {  // "from-to rwxp ..."
      private_mapping = second[3] == 'p';
    } else if (private_mapping && first == "Private_Dirty:") {
      total += std::stoll(second);
    }
  }
  return total;
}

}  // namespace

std::vector<int64_t> worker_private_kb() {
  const Children children = all_processes();
  std::vector<pid_t> workers;
  if (children.contains(getpid())) collect_leaves(children, getpid(), workers);
  std::vector<int64_t> sizes;
  for (const pid_t worker : workers) sizes.push_back(private_dirty_kb(worker));
  return sizes;
}

}  // namespace bench
