#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# On a machine with a GPU and a libtorch for it (in CMAKE_PREFIX_PATH, or a Python that can import
# torch): builds, runs the tests that need one, and prints a table of what was measured. Arguments go
# to the benchmark (--help lists them).
#
#   CMAKE_ARGS   for CMake, as -DCUDA_TOOLKIT_ROOT_DIR=... where it does not find the toolkit
#   GPU_BUILD    the build folder (default build/gpu)
set -euo pipefail
. "$(dirname "$0")/setup.sh"
cd "$root"
build=${GPU_BUILD:-build/gpu}
# shellcheck disable=SC2086
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSTOKER_BUILD_BENCHMARKS=ON \
  ${CMAKE_ARGS:-} >/dev/null
cmake --build "$build" -j "$(nproc)" --target stoker_tests_gpu stoker_tests_device stoker_bench_gpu
"$build/tests/stoker_tests_device" --gtest_brief=1
"$build/tests/stoker_tests_gpu" --gtest_brief=1
"$build/benchmarks/stoker_bench_gpu" "$@"
