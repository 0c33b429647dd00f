// SPDX-License-Identifier: BSD-3-Clause
#include "supervisor/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace stoker::detail {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// A file that holds one number; nothing for "max", or if it is not there.
std::optional<uint64_t> number_in(const fs::path& file) {
  uint64_t value = 0;
  if (std::ifstream(file) >> value) return value;
  return std::nullopt;
}

// The number behind a name in a file of lines "name number".
std::optional<uint64_t> number_of(const std::string& name, const fs::path& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    uint64_t value = 0;
    if (words >> first >> value && first == name) return value;
  }
  return std::nullopt;
}

struct Names {
  const char* limit;
  const char* usage;
  const char* cache;   // in memory.stat
  const char* events;  // the file that counts kills
};

constexpr Names kVersion2{"memory.max", "memory.current", "inactive_file", "memory.events"};
constexpr Names kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                          "memory.oom_control"};

uint64_t left_in(const fs::path& group, const Names& names) {
  const auto limit = number_in(group / names.limit);
  const auto usage = number_in(group / names.usage);
  if (!limit || !usage) return kUnknown;
  const uint64_t cache = number_of(names.cache, group / "memory.stat").value_or(0);
  const uint64_t taken = *usage - std::min(cache, *usage);
  return *limit - std::min(taken, *limit);
}

// A group's limit holds for all groups below it. In a container the group's path may be that of
// the host, and only the mount's top be there. Calls `visit(group, names)` from the top down.
template <class Visit>
void visit_groups(const fs::path& mount, const fs::path& path, const Names& names, Visit visit) {
  visit(mount, names);
  fs::path group = mount;
  for (const fs::path& step : path.relative_path()) {
    group /= step;
    visit(group, names);
  }
}

// All groups with a say in this process's memory.
template <class Visit>
void visit_groups(const fs::path& root, Visit visit) {
  // Lines "0::/path" (version 2) and "4:memory:/path" (version 1; several controllers by commas).
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path path = line.substr(second + 1);
    if (controllers == ",,") {
      visit_groups(root / "sys/fs/cgroup", path, kVersion2, visit);
    } else if (controllers.find(",memory,") != std::string::npos) {
      visit_groups(root / "sys/fs/cgroup/memory", path, kVersion1, visit);
    }
  }
}

}  // namespace

uint64_t available_memory(const fs::path& root) {
  uint64_t left = kUnknown;
  if (const auto kilobytes = number_of("MemAvailable:", root / "proc/meminfo")) {
    left = *kilobytes * 1024;
  }
  visit_groups(root, [&](const fs::path& group, const Names& names) {
    left = std::min(left, left_in(group, names));
  });
  return left;
}

MemorySigns memory_signs(const fs::path& root) {
  constexpr uint64_t kNoLimit = uint64_t{1} << 62;  // version 1 has a number for "none"
  MemorySigns signs{number_of("oom_kill", root / "proc/vmstat"), kUnknown, available_memory(root)};
  // The lowest group that is there counts for its own processes.
  visit_groups(root, [&](const fs::path& group, const Names& names) {
    if (const auto kills = number_of("oom_kill", group / names.events)) signs.oom_kills = kills;
    const auto limit = number_in(group / names.limit);
    if (limit && *limit < kNoLimit) signs.limit = std::min(signs.limit, *limit);
  });
  return signs;
}

uint64_t memory_limit(const DataLoaderOptions& options) {
  return options.shared_memory_limit.value_or(available_memory() / 2);
}

}  // namespace stoker::detail
