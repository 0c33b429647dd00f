#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Sets up, builds the benchmarks and runs all rivals interleaved. Arguments go to benchmarks/run.py.
set -euo pipefail
. "$(dirname "$0")/setup.sh"
cd "$root"
cmake --preset bench >/dev/null
cmake --build build/bench -j "$(nproc)"
# The Python whose torch setup.sh put first.
python=${CMAKE_PREFIX_PATH%%:*}
python=${python%/lib/python*}/bin/python
[ -x "$python" ] || python=python3
exec python3 benchmarks/run.py --python "$python" "$@"
