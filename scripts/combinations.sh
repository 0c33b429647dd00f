#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Draws whole configurations of a loader, and compares each with a serial model.
#   scripts/combinations.sh [SECONDS] [PRESET]     an hour of release by default
# STOKER_COMBINATION_SEED=N runs one again; STOKER_COMBINATION_ONLY="device=1,bad!={}" only some.
set -euo pipefail
. "$(dirname "$0")/setup.sh"
cd "$root"
preset="${2:-release}"
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" -j "$(nproc)" --target stoker_tests_combinations
export ASAN_OPTIONS="${ASAN_OPTIONS:-halt_on_error=1:detect_stack_use_after_return=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}"
STOKER_COMBINATION_SECONDS="${1:-3600}" "build/$preset/tests/stoker_tests_combinations"
