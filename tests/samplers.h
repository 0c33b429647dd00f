// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Ways to read samplers.

#include <stoker/sampler.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace stoker {

template <class Key>
std::vector<Key> rest_of(Sampler<Key>& sampler) {
  std::vector<Key> keys;
  while (auto key = sampler.next()) keys.push_back(*std::move(key));
  return keys;
}

template <class Key>
std::vector<Key> epoch(Sampler<Key>& sampler) {
  sampler.reset();
  return rest_of(sampler);
}

// What an epoch yields after its first keys were skipped.
template <class Key>
std::vector<Key> rest(Sampler<Key>& sampler, int64_t skipped) {
  sampler.reset();
  sampler.skip(skipped);
  return rest_of(sampler);
}

}  // namespace stoker
