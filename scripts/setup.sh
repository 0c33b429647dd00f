#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What the build needs, on Debian 12 or whatever else has it. Sourced by the other scripts: leaves
# CMAKE_PREFIX_PATH leading to libtorch. Quick when everything is there. A script that needs further
# packages names them in the array wants_packages before.
#
#   STOKER_TORCH_REQUIREMENT  what pip installs if no libtorch is found (default torch==2.13.0, the
#                             version the tests are known to pass with)
#   PIP_ARGS                  further arguments for pip, as --index-url of a CPU-only index
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf 'stoker: %s\n' "$*" >&2; }

packages=(g++ cmake ninja-build ccache python3 python3-venv libboost-dev libgtest-dev libgmock-dev
          libbenchmark-dev libcli11-dev nlohmann-json3-dev zlib1g-dev "${wants_packages[@]}")
# Real data for the example; without it the example can make its own.
wanted=(dataset-fashion-mnist)

is_installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

install_packages() {
  command -v dpkg-query >/dev/null || { say "not Debian: needs ${packages[*]} or the like"; return; }
  local missing=() package
  for package in "${packages[@]}" "${wanted[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ]; then
    say "not root, so these packages were not installed: ${missing[*]}"
    return
  fi
  say "installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >&2 </dev/null || say "apt-get update failed; going on with its old lists"
  # One by one where all at once fails: not every distribution has every one of them.
  apt_install "${missing[@]}" || for package in "${missing[@]}"; do
    apt_install "$package" || say "could not install $package; going on without"
  done
}
apt_install() { apt-get install -y -qq --no-install-recommends "$@" >&2 </dev/null; }

has_torch() { [ -n "$1" ] && [ -f "$1/share/cmake/Torch/TorchConfig.cmake" ]; }

# The root of the torch package, not its share/cmake: found from there, its libraries come before
# those of another libtorch in the system's folders.
torch_of() {  # without importing it, which takes seconds
  "$1" -c 'import importlib.util as i, os; print(os.path.dirname(i.find_spec("torch").origin))' \
    2>/dev/null
}

find_torch() {
  local prefix found
  IFS=: read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do
    prefix=${prefix%/share/cmake}  # what torch.utils.cmake_prefix_path says
    has_torch "$prefix" && { export CMAKE_PREFIX_PATH="$prefix:$CMAKE_PREFIX_PATH"; return; }
  done
  for python in python3 "$root/.venv/bin/python"; do
    found=$(torch_of "$python") && has_torch "$found" && {
      export CMAKE_PREFIX_PATH="$found${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}"
      return
    }
  done
  say "installing ${STOKER_TORCH_REQUIREMENT:=torch==2.13.0} in .venv"
  python3 -m venv "$root/.venv" &&
    "$root/.venv/bin/pip" install -q ${PIP_ARGS:-} "$STOKER_TORCH_REQUIREMENT" numpy >&2 ||
    { say "no libtorch: set CMAKE_PREFIX_PATH to one"; return 1; }
  CMAKE_PREFIX_PATH="$(torch_of "$root/.venv/bin/python")${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}"
  export CMAKE_PREFIX_PATH
}

install_packages
find_torch
