#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A short run under Valgrind: main, supervisor and workers, whose errors are looked for in a log each.
# (Leaks are the preset asan's: to look for them takes a process longer than it has to end.) Sets up
# and builds what it needs. Takes some minutes; exit status 1 if one is found.
#   scripts/valgrind.sh [GTEST_FILTER]
set -euo pipefail
wants_packages=(valgrind)
. "$(dirname "$0")/setup.sh"
cd "$root"
filter=${1:-HostileUseTest.AnEpochOfOneLoaderForEachBatchOfAnother:HostileSizeTest.SamplesOfOneByte:\
HostileDatasetTest.SamplesOfNothing*:FaultsTest.AnExceptionInGet*:Places/WildWriteTest.*:DeadlySampleTest.IsSkipped*}
cmake --preset dev >/dev/null
cmake --build --preset dev -j "$(nproc)" --target stoker_tests_faults

logs=build/valgrind
rm -rf "$logs"
mkdir -p "$logs"
status=0
# One thread: Valgrind runs them one after the other anyway.
OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 valgrind --trace-children=yes --log-file="$logs/%p.log" \
  --suppressions=scripts/valgrind.supp --leak-check=no --num-callers=30 --error-exitcode=99 \
  build/dev/tests/stoker_tests_faults --gtest_filter="$filter" || status=1

for log in "$logs"/*.log; do
  # One that was killed tells no sum.
  if grep -q 'ERROR SUMMARY: [1-9]' "$log" || grep -qE '(Invalid|uninitialised)' "$log"; then
    cat "$log" >&2
    status=1
  fi
done
say "$(ls "$logs" | wc -l) processes; $(cat "$logs"/*.log | grep -c 'ERROR SUMMARY: 0') ended without an error"
exit $status
