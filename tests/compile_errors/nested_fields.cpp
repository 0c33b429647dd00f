// SPDX-License-Identifier: BSD-3-Clause
// expects: stoker: this type cannot be a field of a sample
// notes: Require<Box, .*MapValue>
#include <stoker/dataloader.h>

struct Box {  // without SampleTraits
  int64_t left, top;
};
struct Photos {
  std::pair<at::Tensor, std::vector<std::map<std::string, Box>>> get(size_t) const;
  size_t size() const;
};

void load(Photos photos) { stoker::DataLoader loader(photos); }
