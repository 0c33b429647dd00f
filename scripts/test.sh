#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Sets up, builds and runs all tests. Arguments are presets: dev (the default), asan, tsan.
set -euo pipefail
. "$(dirname "$0")/setup.sh"
cd "$root"
[ $# -gt 0 ] || set -- dev
for preset in "$@"; do
  cmake --preset "$preset"
  cmake --build --preset "$preset" -j "$(nproc)"
  ctest --preset "$preset"
done
