// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/read_buffers.h"

namespace lsm::nvme {

DataPointer ReadBuffers::pointer(size_t index, uint64_t bytes) const {
  const size_t first_page = index * buffer_pages_;
  const size_t first_list = index * list_pages_;
  auto* list = reinterpret_cast<uint64_t*>(lists_.data + first_list * kPageBytes);
  return make_data_pointer(
      0, bytes, [&](uint32_t page) { return data_.pages[first_page + page]; }, list,
      [&](uint32_t page) { return lists_.pages[first_list + page]; });
}

}  // namespace lsm::nvme
