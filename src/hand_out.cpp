// SPDX-License-Identifier: BSD-3-Clause
#include "hand_out.h"

#include <ATen/ops/from_blob.h>

#include <cstring>
#include <optional>

#include "row_layout.h"

namespace stoker::detail {

namespace {

std::vector<std::string> copy_strings(Slot slot, const std::byte* rows, size_t n) {
  std::vector<std::string> strings(n);
  for (size_t row = 0; row < n; ++row) {
    StringRow entry;
    std::memcpy(&entry, rows + row * sizeof entry, sizeof entry);
    strings[row].assign(reinterpret_cast<const char*>(slot.at(entry.offset)), entry.bytes);
  }
  return strings;
}

at::Tensor wrap(std::byte* rows, at::IntArrayRef sizes, std::optional<int64_t> n,
                at::ScalarType dtype, Lease& lease) {
  c10::SmallVector<int64_t, 6> batch_sizes;
  if (n) batch_sizes.push_back(*n);
  batch_sizes.append(sizes.begin(), sizes.end());
  lease.add();
  return at::for_blob(rows, batch_sizes)
      .context(&lease, &Lease::release)
      .options(at::TensorOptions(dtype))
      .make_tensor();
}

// The memory is libtorch's then, which watches over its copies.
void copy_to_pinned(BatchLeaves& batch) {
  for (auto& leaf : batch.leaves) {
    if (leaf.tensor.defined()) leaf.tensor = leaf.tensor.pin_memory();
  }
}

BatchLeaves::Delivery delivery_of(Slot slot) {
  const Origin origin = slot.origin();
  BatchLeaves::Delivery delivery{origin.first_position, slot.header().fetched, {}, {}};
  if (origin.worker == Origin::kAnyWorker) return delivery;
  delivery.worker = origin.worker;
  delivery.stream_state = slot.text(slot.header().stream_state);
  return delivery;
}

}  // namespace

void hand_out(const std::shared_ptr<SlotPool>& pool, uint32_t id, BatchLeaves& batch, bool single) {
  const Slot slot = pool->control().slot(id);
  const SlotHeader& header = slot.header();
  const RowLayout layout(slot.at(header.result_layout));
  // A collated batch is one row; of a stream, fewer samples may have come than there are rows.
  const uint64_t n = single ? 1 : slot.num_samples();
  const uint64_t fetched = single ? 1 : header.fetched;
  auto* lease = new Lease(pool, id);
  // Whatever happens below, this count of the lease ends, and with it, if need be, the lease.
  const std::unique_ptr<Lease, decltype(&Lease::release)> mine(
      lease, [](void* held) { Lease::release(held); });
  std::byte* rows = slot.at(header.result_rows);
  batch.structure = layout.structure();
  batch.delivery = delivery_of(slot);
  for (const RowLayout::Leaf& leaf : layout.leaves()) {
    auto& out = batch.leaves.emplace_back();
    if (leaf.kind == FlatSample::Kind::kString) {
      out.strings = copy_strings(slot, rows, fetched);
    } else {
      const auto size = single ? std::nullopt : std::optional(static_cast<int64_t>(fetched));
      out.tensor = wrap(rows, layout.sizes(leaf), size, leaf.dtype, *lease);
    }
    rows += align64(leaf.row_bytes * n);
  }
  const uint64_t rows_bytes = layout.rows_bytes(n).value_or(0);
  pool->learn(id, rows_bytes + header.open_used.load(std::memory_order_relaxed));
  pool->pin(id, header.result_rows, rows_bytes);
  if (pool->pinning() == Pinning::kCopied) copy_to_pinned(batch);
}

}  // namespace stoker::detail
