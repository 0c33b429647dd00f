// SPDX-License-Identifier: BSD-3-Clause
#include "loader/hand_out.h"

#include <ATen/ops/from_blob.h>

#include <optional>

#include "loader/finished_batch.h"

namespace stoker::detail {

namespace {

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

}  // namespace

void hand_out(const std::shared_ptr<SlotPool>& pool, uint32_t id, BatchLeaves& batch, bool single) {
  const Slot slot = pool->control().slot(id);
  const uint64_t num_samples = pool->num_samples(id);
  // A collated batch is one row; of a stream, fewer samples may have come than there are rows.
  const uint64_t fetched = single ? 1 : slot.header().fetched;
  auto* lease = new Lease(pool, id);
  // Whatever happens below, this count of the lease ends, and with it, if need be, the lease.
  const std::unique_ptr<Lease, decltype(&Lease::release)> mine(
      lease, [](void* held) { Lease::release(held); });
  if (fetched > num_samples) throw_damaged("the header");
  FinishedBatch finished(slot, num_samples, single);
  const RowLayout layout = finished.layout();
  std::byte* rows = finished.rows();
  batch.structure = layout.structure();
  for (const RowLayout::Leaf& leaf : layout.leaves()) {
    auto& out = batch.leaves.emplace_back();
    if (leaf.kind == FlatSample::Kind::kString) {
      out.strings = finished.strings(rows, fetched);
    } else {
      const auto size = single ? std::nullopt : std::optional(static_cast<int64_t>(fetched));
      out.tensor = wrap(rows, layout.sizes(leaf), size, leaf.dtype, *lease);
      out.is_number = single && leaf.kind == FlatSample::Kind::kNumber;
    }
    rows += align64(leaf.row_bytes * finished.num_rows());
  }
  pool->learn(id, finished.bytes());
  pool->pin(id, slot.header().result_rows, finished.rows_bytes());
  if (pool->pinning() == Pinning::kCopied) copy_to_pinned(batch);
}

}  // namespace stoker::detail
