// SPDX-License-Identifier: BSD-3-Clause
#include "combination_datasets.h"

namespace stoker::combination {

std::unique_ptr<AnyLoader> make_batched_loader(Trouble trouble, DataLoaderOptions options) {
  Maker maker(std::move(trouble));
  switch (maker.combination().sample) {
    case kIndex:
      return loader_with<int64_t>(BatchedData<int64_t>{{std::move(maker)}}, std::move(options));
    case kPair: return loader_with<Pair>(BatchedData<Pair>{{std::move(maker)}}, std::move(options));
    case kRows: return loader_with<Rows>(RowsData(std::move(maker)), std::move(options));
    default: return loader_with<Item>(BatchedData<Item>{{std::move(maker)}}, std::move(options));
  }
}

}  // namespace stoker::combination
