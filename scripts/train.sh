#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Sets up, builds the example and trains it on the real Fashion-MNIST. Arguments go to the example;
# without any: two epochs with two workers.
set -euo pipefail
. "$(dirname "$0")/setup.sh"
cd "$root"
cmake --preset release -DSTOKER_BUILD_TESTS=OFF >/dev/null
cmake --build build/release --target train_fashion_mnist
data=/usr/share/datasets/fashion-mnist
if [ -d "$data" ]; then
  source=(--data "$data")
else
  say "no Fashion-MNIST in $data (Debian: dataset-fashion-mnist); using generated images"
  source=(--synthetic)
fi
exec build/release/examples/train_fashion_mnist "${source[@]}" "$@"
