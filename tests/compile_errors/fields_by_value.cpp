// SPDX-License-Identifier: BSD-3-Clause
// expects: stoker: SampleTraits::fields must return references to the sample's fields: use std::tie
// notes: FieldsOf<Photo>
#include <stoker/dataloader.h>

struct Photo {
  at::Tensor image;
  int64_t label;
};
template <>
struct stoker::SampleTraits<Photo> {
  static auto fields(const Photo& photo) {
    return std::tuple<const at::Tensor&, int64_t>(photo.image, photo.label);
  }
};
struct Photos {
  Photo get(size_t) const;
  size_t size() const;
};

void load(Photos photos) { stoker::DataLoader loader(photos); }
