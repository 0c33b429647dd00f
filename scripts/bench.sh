#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Sets up, builds the benchmarks and runs all rivals interleaved. Arguments go to benchmarks/run.py.
set -euo pipefail
. "$(dirname "$0")/setup.sh"
cd "$root"
cmake --preset bench >/dev/null
cmake --build build/bench -j "$(nproc)"
python=python3
"$python" -c 'import torch' 2>/dev/null || python="$root/.venv/bin/python"
exec python3 benchmarks/run.py --python "$python" "$@"
