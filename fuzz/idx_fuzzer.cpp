// SPDX-License-Identifier: BSD-3-Clause

// A file of any bytes, plain or gzipped: items as many as it says, or an error that begins with the
// file's name.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "idx_file.h"

namespace {

void check(const std::string& path, const std::vector<uint64_t>& shape) {
  try {
    const idx::Items items = idx::read(path, shape);
    uint64_t expected = items.size;
    for (const uint64_t size : shape) expected *= size;
    if (items.values.size() != expected) std::abort();
  } catch (const std::runtime_error& error) {
    if (!std::string(error.what()).starts_with(path + ": ")) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("idx", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) {
    std::abort();
  }
  check(path, {});
  check(path, {2, 2});
  return 0;
}
