// SPDX-License-Identifier: BSD-3-Clause
#include <stoker/stats.h>

#include <cstdio>
#include <ostream>
#include <string>

namespace stoker {

namespace {

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::string line(const WaitStats& stats) {
  char text[192];
  std::snprintf(text, sizeof text,
                "%lld batches, %lld samples; waited %.3f s for data (%.1f %%), computed %.3f s",
                static_cast<long long>(stats.batches), static_cast<long long>(stats.samples),
                seconds(stats.waited), 100 * stats.wait_share(), seconds(stats.computed));
  return text;
}

}  // namespace

double WaitStats::wait_share() const {
  const auto all = waited + computed;
  return all.count() == 0 ? 0 : seconds(waited) / seconds(all);
}

WaitStats& WaitStats::operator+=(const WaitStats& other) {
  batches += other.batches;
  samples += other.samples;
  waited += other.waited;
  computed += other.computed;
  return *this;
}

std::ostream& operator<<(std::ostream& out, const LoaderStats& stats) {
  char first[64];
  std::snprintf(first, sizeof first, "; first batch after %.1f ms",
                1e3 * seconds(stats.first_batch));
  out << "epoch " << stats.epochs << ": " << line(stats.epoch) << first << "\n"
      << "in all: " << line(stats.total);
  if (stats.restarts > 0) out << "; workers replaced: " << stats.restarts;
  if (stats.errors > 0) out << "; samples skipped or replaced: " << stats.errors;
  if (stats.pinning == Pinning::kInPlace) out << "; batches pinned in place";
  if (stats.pinning == Pinning::kCopied) out << "; batches copied to pinned memory";
  return out;
}

}  // namespace stoker
