// SPDX-License-Identifier: BSD-3-Clause
#include "hand_out.h"

#include <ATen/ops/from_blob.h>

#include "finished_batch.h"

namespace stoker::detail {

namespace {

at::Tensor wrap(std::byte* rows, at::IntArrayRef sizes, int64_t n, at::ScalarType dtype,
                Lease& lease) {
  c10::SmallVector<int64_t, 6> batch_sizes{n};
  batch_sizes.append(sizes.begin(), sizes.end());
  lease.add();
  return at::for_blob(rows, batch_sizes)
      .context(&lease, &Lease::release)
      .options(at::TensorOptions(dtype))
      .make_tensor();
}

}  // namespace

void hand_out(const std::shared_ptr<SlotPool>& pool, uint32_t id, BatchLeaves& batch) {
  const Slot slot = pool->control().slot(id);
  const uint64_t n = pool->num_samples(id);
  auto* lease = new Lease(pool, id);
  // Whatever happens below, this count of the lease ends, and with it, if need be, the lease.
  const std::unique_ptr<Lease, decltype(&Lease::release)> mine(
      lease, [](void* held) { Lease::release(held); });
  FinishedBatch finished(slot, n);
  const RowLayout layout = finished.layout();
  std::byte* rows = finished.rows();
  batch.structure = layout.structure();
  for (const RowLayout::Leaf& leaf : layout.leaves()) {
    auto& out = batch.leaves.emplace_back();
    if (leaf.kind == FlatSample::Kind::kString) {
      out.strings = finished.strings(rows);
    } else {
      out.tensor = wrap(rows, layout.sizes(leaf), static_cast<int64_t>(n), leaf.dtype, *lease);
    }
    rows += align64(leaf.row_bytes * n);
  }
  pool->learn(id, finished.bytes());
}

}  // namespace stoker::detail
