#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills workers at random while epochs run, and compares every epoch with an undisturbed one.
#   scripts/soak.sh [SECONDS]     an hour by default
set -euo pipefail
. "$(dirname "$0")/setup.sh"
cd "$root"
cmake --preset release >/dev/null
cmake --build --preset release -j "$(nproc)" --target stoker_tests_faults
STOKER_SOAK_SECONDS="${1:-3600}" build/release/tests/stoker_tests_faults --gtest_filter='SoakTest.*'
