// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// A loader whose types are hidden, so that configurations that differ in them are driven alike.

#include <stoker/dataloader.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "combination.h"
#include "combination_trouble.h"

namespace stoker::combination {

// What is compared of a batch.
struct Seen {
  Numbers indices;
  size_t bytes = 0;  // a hash of them, and of all sizes and lengths
  bool on_device = true;

  bool operator==(const Seen&) const = default;
};

class AnyLoader {
 public:
  virtual ~AnyLoader() = default;
  // False at the end of the epoch.
  virtual bool begin() = 0;
  virtual bool next() = 0;
  virtual Seen look() = 0;
  // Takes the batch out of the loader's hands, and looks at it later.
  virtual std::function<Seen()> take() = 0;
  virtual StateDict state() const = 0;
  virtual void load(const StateDict& state) = 0;
  virtual const LoaderStats& stats() const = 0;
};

std::unique_ptr<AnyLoader> make_map_loader(Trouble trouble, DataLoaderOptions options);
std::unique_ptr<AnyLoader> make_batched_loader(Trouble trouble, DataLoaderOptions options);
std::unique_ptr<AnyLoader> make_stream_loader(Trouble trouble, DataLoaderOptions options);

}  // namespace stoker::combination
