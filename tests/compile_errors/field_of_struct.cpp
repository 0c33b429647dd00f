// SPDX-License-Identifier: BSD-3-Clause
// expects: stoker: a pointer cannot be a field of a sample
// notes: Require<const char ?\*, .*Field<1>
#include <stoker/dataloader.h>

struct Photo {
  at::Tensor image;
  const char* name;
};
template <>
struct stoker::SampleTraits<Photo> {
  static auto fields(const Photo& photo) { return std::tie(photo.image, photo.name); }
};
struct Photos {
  struct Stream {
    std::optional<Photo> next();
  };
  Stream stream();
};

void load(Photos photos) { stoker::DataLoader loader(photos); }
