// SPDX-License-Identifier: BSD-3-Clause
// expects: stoker: a dataset with get(size_t) must have size() too
// notes: RequireDataset<Photos>
#include <stoker/dataloader.h>

struct Photos {
  at::Tensor get(size_t) const;
  size_t length() const;
};

void load(Photos photos) { stoker::DataLoader loader(photos, {.batch_size = 2}); }
