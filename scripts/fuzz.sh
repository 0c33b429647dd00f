#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fuzzes what reads bytes that nobody vouches for: a slot's record, idx files, states. Sets up and
# builds what it needs (clang and its run-time libraries, from Debian). Exit status: 1 upon a finding, whose input is then in
# build/fuzz/findings; what was learned is kept in build/fuzz/corpus.
#   scripts/fuzz.sh [SECONDS [NAME...]]     60 s, shared by record, idx and state
set -euo pipefail
wants_packages=(clang libclang-rt-dev)
. "$(dirname "$0")/setup.sh"
cd "$root"
seconds=${1:-60}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- record idx state
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz -j "$(nproc)" --target $(printf 'fuzz_%s ' "$@")

# Seeds: one sound example of each kind.
corpus=build/fuzz/corpus
mkdir -p build/fuzz/findings "$corpus"/{record,idx,state}
printf '\0' >"$corpus/record/sound"
printf '\0\0\x08\x01\0\0\0\x03abc' >"$corpus/idx/labels"
printf '\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x02abcd' >"$corpus/idx/pictures"
gzip -nc "$corpus/idx/pictures" >"$corpus/idx/pictures.gz"
printf '{"seed":7,"draws":3,"next_float":5,"name":"\\u00e9"}' >"$corpus/state/generator"

# libtorch's own containers are not instrumented.
export ASAN_OPTIONS=detect_container_overflow=0:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1
status=0
for name in "$@"; do
  log=build/fuzz/$name.log
  build/fuzz/fuzz/fuzz_"$name" "$corpus/$name" -max_total_time=$((seconds / $# > 0 ? seconds / $# : 1)) \
    -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 -artifact_prefix=build/fuzz/findings/ \
    >"$log" 2>&1 || { status=1; tail -n 60 "$log" >&2; say "$name: a finding"; continue; }
  say "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions, no finding"
done
exit $status
