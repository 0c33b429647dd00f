// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What a process has of the machine: memory, mappings, descriptors.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace stoker {

struct Kilobytes {
  int64_t dirty = 0;
  int64_t of_region = 0;
};

// Memory that is this process's alone. The batches' memory is all processes', but counts as
// private while the process is the only one that has touched a page of it.
inline Kilobytes private_memory(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps");
  Kilobytes sum;
  bool in_region = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t value = 0;
    words >> name;
    if (name.find('-') != std::string::npos && name.back() != ':') {
      in_region = line.find("/memfd:stoker") != std::string::npos;
    } else if (name == "Private_Dirty:" && words >> value) {
      (in_region ? sum.of_region : sum.dirty) += value;
    }
  }
  return sum;
}

// A number that /proc/PID/status tells, as "VmSize:" in kilobytes.
inline int64_t process_status(pid_t pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; file >> word;) {
    int64_t value = 0;
    if (word == name && file >> value) return value;
  }
  return 0;
}

inline size_t mappings(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
  size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

inline size_t open_descriptors(const std::string& process = "self") {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/" + process + "/fd"),
                    std::filesystem::directory_iterator()));
}

}  // namespace stoker
