#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Lets Spin search model/slot_protocol.pml exhaustively, and every broken copy of it until it finds
# the error that must be there. Takes no arguments; about 3 minutes of one core, and 2 GB. Exit
# status: 1 if an error is found in the protocol, or none in a broken copy; 2 without spin.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
model=$root/model/slot_protocol.pml

command -v spin >/dev/null || { echo "needs Spin: apt-get install spin" >&2; exit 2; }
command -v gcc >/dev/null || { echo "needs a C compiler: apt-get install gcc" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# search NAME 'COMPILER FLAGS' 'FLAGS OF THE SEARCH' SPIN-DEFINES...; leaves NAME.log. No partial
# order reduction: with a death that can come at any step it is not safe, says Spin.
search() {
  local name=$1 compile=$2 flags=$3
  shift 3
  rm -f pan pan.* ./*.trail
  spin "$@" -a "$model" >spin.log 2>&1 && [ -f pan.c ] || { cat spin.log >&2; fail "$name: spin"; }
  # shellcheck disable=SC2086
  gcc $compile -DNOREDUCE -DMEMLIM=3500 -o pan pan.c
  # shellcheck disable=SC2086
  nice -n 10 ./pan -m10000 $flags >"$name.log" 2>&1 || true
  grep -q 'errors: ' "$name.log" || { cat "$name.log" >&2; fail "$name: the search broke off"; }
}

states() { sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$1.log"; }

# expect_none NAME WHAT FLAGS...
expect_none() {
  local name=$1 what=$2
  shift 2
  search "$name" "$@"
  if ! grep -q 'errors: 0$' "$name.log" || grep -qE 'not completed|depth too small' "$name.log"; then
    cat "$name.log" >&2
    spin -t -p -g -l "${@:3}" -k ./*.trail "$model" 2>/dev/null | tail -n 60 >&2 || true
    fail "$what"
  fi
  printf '%-36s %9s states, 0 errors\n' "$what" "$(states "$name")"
}

# The violated assertion as it is written, or pan's own words.
error_of() {
  local line
  line=$(spin -t "-D$1" -DBATCHES=2 -k ./*.trail "$model" 2>/dev/null |
    sed -n 's/^spin: .*slot_protocol\.pml:\([0-9]*\), Error: assertion violated.*/\1/p' | head -n 1)
  if [ -n "$line" ]; then
    printf 'line %s: %s\n' "$line" "$(sed -n "${line}s/^ *//p" "$model")"
  else
    sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' "$1.log"
  fi
}

expect_none cycles 'no cycle, with two batches' '-O2 -DNP' -l -DBATCHES=2
expect_none protocol 'the protocol, with three batches' '-O2 -DSAFETY' -w26

for name in $(grep -oE 'BROKEN_[A-Z]+[A-Z_]*' "$root/model/broken.pml" | LC_ALL=C sort -u); do
  search "$name" '-O1 -DSAFETY' '' "-D$name" -DBATCHES=2
  grep -q 'errors: 1$' "$name.log" || { cat "$name.log" >&2; fail "$name: no error found"; }
  printf '%-36s %9s states, %s\n' "$name" "$(states "$name")" "$(error_of "$name")"
done
