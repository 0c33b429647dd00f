// SPDX-License-Identifier: BSD-3-Clause
#include <stoker/detail/core.h>

#include <stdexcept>

namespace stoker::detail {

namespace {

[[noreturn]] void throw_wrong_kind() {
  throw std::logic_error("stoker: the dataset is not of that kind");
}

}  // namespace

const FlatSample& Fetcher::get(size_t) { throw_wrong_kind(); }
size_t Fetcher::fetch(std::span<const size_t>) { throw_wrong_kind(); }
const FlatSample& Fetcher::fetched(size_t) { throw_wrong_kind(); }
void Fetcher::open_stream(const std::string&) { throw_wrong_kind(); }
const FlatSample* Fetcher::next() { throw_wrong_kind(); }
void Fetcher::skip(uint64_t) { throw_wrong_kind(); }
std::string Fetcher::stream_state() { throw_wrong_kind(); }

}  // namespace stoker::detail
