// SPDX-License-Identifier: BSD-3-Clause
#include "combination_datasets.h"

namespace stoker::combination {
namespace {

template <class Stream>
std::unique_ptr<AnyLoader> stream_loader(Maker maker, DataLoaderOptions options) {
  const Combination c = maker.combination();
  StreamData<Stream> dataset{std::move(maker)};
  if (c.collate != kFunction) {
    return loader_of(std::move(dataset), std::move(options), DefaultCollate{});
  }
  return loader_of(std::move(dataset), std::move(options), Summary{c.collate_draws != 0});
}

template <class S>
std::unique_ptr<AnyLoader> choose_stream(Maker maker, DataLoaderOptions options) {
  using Plain = PlainStream<S>;
  const Combination& c = maker.combination();
  if (c.stream_has_state != 0 && c.stream_skips != 0) {
    return stream_loader<Stateful<Skipping<Plain>>>(std::move(maker), std::move(options));
  }
  if (c.stream_has_state != 0) {
    return stream_loader<Stateful<Plain>>(std::move(maker), std::move(options));
  }
  if (c.stream_skips != 0) {
    return stream_loader<Skipping<Plain>>(std::move(maker), std::move(options));
  }
  return stream_loader<Plain>(std::move(maker), std::move(options));
}

}  // namespace

std::unique_ptr<AnyLoader> make_stream_loader(Trouble trouble, DataLoaderOptions options) {
  Maker maker(std::move(trouble));
  switch (maker.combination().sample) {
    case kIndex: return choose_stream<int64_t>(std::move(maker), std::move(options));
    case kPair: return choose_stream<Pair>(std::move(maker), std::move(options));
    default: return choose_stream<Item>(std::move(maker), std::move(options));
  }
}

}  // namespace stoker::combination
