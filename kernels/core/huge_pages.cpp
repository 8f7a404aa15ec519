// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/core/huge_pages.h"

#include <cstdint>

namespace lsm {
namespace {

/// MADV_COLLAPSE, which not all C libraries name yet.
constexpr int kCollapse = 25;

}  // namespace

void collapse_into_huge_pages(std::span<const std::byte> array) {
  const auto first = reinterpret_cast<uintptr_t>(array.data());
  const uintptr_t begin = (first + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const uintptr_t end = (first + array.size()) / kHugePageBytes * kHugePageBytes;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, kCollapse);
}

}  // namespace lsm
