// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Physical region pages: the address format of a command's data (NVMe 1.4, 4.3).
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"
#include "kernels/io/nvme/protocol/spec.h"

namespace lsm::nvme {

/// PRP1 and PRP2 of a command.
struct DataPointer {
  uint64_t prp1;
  uint64_t prp2;
};

inline constexpr uint32_t kPrpsPerPage = kPageBytes / 8;

/// Pages of a transfer that starts `offset` bytes into its first page.
LSM_HOST_DEVICE constexpr uint32_t num_pages(uint32_t offset, uint64_t bytes) {
  return static_cast<uint32_t>((offset + bytes + kPageBytes - 1) / kPageBytes);
}

/// Pages of PRP lists for a transfer over `pages` pages. Up to two pages fit the command itself.
/// Otherwise PRP2 points to a list of all but the first, and the last entry of a full list page
/// points to the next list page while more entries remain than fit.
LSM_HOST_DEVICE constexpr uint32_t num_list_pages(uint32_t pages) {
  if (pages <= 2) return 0;
  const uint32_t entries = pages - 1;
  return entries <= kPrpsPerPage ? 1 : (entries - 2) / (kPrpsPerPage - 1) + 1;
}

/// PRP1 and PRP2 for `bytes` bytes that start `offset` bytes into page 0. page_address(i) is the
/// address of page i as the controller sees it; `list` the memory of num_list_pages() pages, of
/// which page i has the address list_address(i). Entries of `list` beyond those needed stay as they
/// are.
template <class PageAddress, class ListAddress>
LSM_HOST_DEVICE DataPointer make_data_pointer(uint32_t offset, uint64_t bytes,
                                              PageAddress&& page_address, uint64_t* list,
                                              ListAddress&& list_address) {
  const uint32_t pages = num_pages(offset, bytes);
  DataPointer data{page_address(0u) + offset, 0};
  if (pages == 2) data.prp2 = page_address(1u);
  if (pages <= 2) return data;
  data.prp2 = list_address(0u);
  uint32_t slot = 0;
  for (uint32_t page = 1; page < pages; ++page, ++slot) {
    const bool last_of_list_page = slot % kPrpsPerPage == kPrpsPerPage - 1;
    if (last_of_list_page && page + 1 < pages) {
      list[slot] = list_address(slot / kPrpsPerPage + 1);
      ++slot;
    }
    list[slot] = page_address(page);
  }
  return data;
}

}  // namespace lsm::nvme
