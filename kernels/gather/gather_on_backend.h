// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/core/atomics.h"
#include "kernels/gather/copy_rows_functors.h"
#include "kernels/gather/gpu_gather.h"

namespace lsm {

/// CopyRows of a GpuGather that holds a reference to each line during its copy.
template <class Word, Scope kScope>
struct CopyLockedRows {
  GpuGather gather;

  template <class Lanes>
  LSM_HOST_DEVICE void operator()(const Lanes& lanes, int64_t i) const {
    const int64_t row = gather.ids[i];
    lanes.each([&](int lane) {
      if (lane == 0) atomic_acquire<kScope>(gather.references + row);
    });
    copy_row<Word>(lanes, gather.source + row * gather.row_bytes, gather.out + i * gather.row_bytes,
                   gather.row_bytes);
    lanes.each([&](int lane) {
      if (lane == 0) atomic_release<kScope>(gather.references + row);
    });
  }
};

template <Scope kScope, class Backend>
void copy_locked_rows(Backend& backend, const GpuGather& gather, uintptr_t alignment) {
  if (alignment % sizeof(Word16) == 0) {
    backend.for_each_warp(gather.count, CopyLockedRows<Word16, kScope>{gather});
  } else {
    backend.for_each_warp(gather.count, CopyLockedRows<uint8_t, kScope>{gather});
  }
}

template <class Backend>
void run_gather(Backend& backend, const GpuGather& gather, LineLocks locks) {
  const uintptr_t alignment = alignment_bits(gather.row_bytes, gather.source, gather.out);
  if (locks == LineLocks::kNone) {
    const NumberedRows<int64_t> rows{gather.source, gather.ids, gather.out, nullptr,
                                     gather.row_bytes};
    copy_rows_on(backend, gather.count, gather.row_bytes, alignment, rows);
  } else if (locks == LineLocks::kDevice) {
    copy_locked_rows<Scope::kDevice>(backend, gather, alignment);
  } else {
    copy_locked_rows<Scope::kSystem>(backend, gather, alignment);
  }
}

}  // namespace lsm
