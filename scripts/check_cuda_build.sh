#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the same sources against a CUDA build of libtorch and runs the tests that need no GPU.
#   scripts/check_cuda_build.sh FOLDER [PROGRAM...]
# PROGRAM: only these test programs, as stoker_tests_device.
# FOLDER, outside the checkout, takes a virtual environment with libtorch (6 GB) and the build (1 GB);
# what is there already is used. Needs nvcc: TorchConfig.cmake looks for the toolkit, though nothing
# of ours is compiled with it.
#
#   STOKER_CUDA_TORCH_REQUIREMENT  what pip installs (default torch==2.14.1)
#   PIP_ARGS                       further arguments for pip
#   JOBS                           compilers at a time (default: all cores)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
fail() { printf 'stoker: %s\n' "$*" >&2; exit 1; }

[ $# -ge 1 ] || fail "usage: check_cuda_build.sh FOLDER [PROGRAM...]"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
case $folder/ in "$root"/*) fail "$folder lies in the checkout; give a folder outside" ;; esac
command -v nvcc >/dev/null || fail "no nvcc: install a CUDA toolkit of the version that libtorch is built for"

venv=$folder
if ! ls "$venv"/lib/python*/site-packages/torch/share/cmake/Torch/TorchConfig.cmake >/dev/null 2>&1; then
  free=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1048576) }')
  [ "$free" -ge 15 ] || fail "$folder has $free GB free; 15 are needed while pip unpacks"
  python3 -m venv "$venv"
  # shellcheck disable=SC2086
  "$venv/bin/pip" install -q ${PIP_ARGS:-} "${STOKER_CUDA_TORCH_REQUIREMENT:-torch==2.14.1}" numpy >&2
fi
torch=$("$venv/bin/python" -c 'import importlib.util as i, os; print(os.path.dirname(i.find_spec("torch").origin))')
# The nvcc in the path may be a link or a wrapper; it knows itself where the toolkit is.
toolkit=$(nvcc --dryrun -E -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
toolkit=$(cd "$toolkit" && pwd -P)
# libtorch's packages bring some of the toolkit's libraries, which the toolkit itself may lack.
nvrtc=$(find "$toolkit"/lib64/ "$venv"/lib/python*/site-packages/nvidia -name 'libnvrtc.so*' 2>/dev/null | head -n 1)
say() { printf '\n== %s\n' "$*"; }

say "libtorch $("$venv/bin/python" - <<PYTHON
text = open("$torch/version.py").read()
scope = {}
exec(text, scope)
print(scope["__version__"], "for CUDA", scope["cuda"])
PYTHON
), toolkit $("$toolkit/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
build=$folder/stoker-build
CMAKE_PREFIX_PATH=$torch cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
  -DSTOKER_BUILD_TESTS=ON -DSTOKER_BUILD_EXAMPLES=ON -DSTOKER_BUILD_BENCHMARKS=OFF \
  -DCUDA_TOOLKIT_ROOT_DIR="$toolkit" -DCMAKE_CUDA_COMPILER="$toolkit/bin/nvcc" \
  ${nvrtc:+-DCUDA_nvrtc_LIBRARY="$nvrtc"}
# shellcheck disable=SC2048,SC2086
cmake --build "$build" -j "${JOBS:-$(nproc)}" --target ${*:-all} train_fashion_mnist

say "what the program loads"
ldd "$build/examples/train_fashion_mnist" | grep -E 'libtorch|libcudart|libc10' | awk '{ print $1 }'
say "the example"
"$build/examples/train_fashion_mnist" --synthetic --epochs 1 --steps 20
say "the example where there is no GPU, or with it"
"$build/examples/train_fashion_mnist" --synthetic --epochs 1 --steps 20 --device cuda || [ $? -eq 2 ]
say "the tests"
if [ $# -eq 0 ]; then
  ctest --test-dir "$build" --output-on-failure -LE consumer
else
  for program in "$@"; do "$build/tests/$program" --gtest_brief=1; done
fi
