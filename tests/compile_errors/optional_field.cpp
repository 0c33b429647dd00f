// SPDX-License-Identifier: BSD-3-Clause
// expects: stoker: std::optional cannot be a field of a sample
// notes: Require<std::optional<long.*Field<1>
#include <stoker/dataloader.h>

struct Photos {
  std::tuple<at::Tensor, std::optional<int64_t>> get(size_t) const;
  size_t size() const;
};

void load(Photos photos) { stoker::DataLoader loader(photos, {.batch_size = 2}); }
