// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/io/nvme/engine/gpu_landing.h"
#include "kernels/io/nvme/protocol/prp.h"
#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

/// Buffers of equal size for reads of one controller, each with memory for its PRP lists.
class ReadBuffers {
 public:
  /// In memory of `landing`, or of the host if it is null.
  ReadBuffers(Transport& transport, size_t count, size_t bytes, GpuLanding* landing = nullptr)
      : count_(count),
        buffer_pages_((bytes + kPageBytes - 1) / kPageBytes),
        list_pages_(num_list_pages(static_cast<uint32_t>(buffer_pages_))),
        data_(landing != nullptr
                  ? landing->allocate(transport, count * buffer_pages_ * kPageBytes)
                  : transport.allocate(count * buffer_pages_ * kPageBytes, DmaShape::kPages)) {
    if (list_pages_ > 0) {
      lists_ = transport.allocate(count * list_pages_ * kPageBytes, DmaShape::kPages);
    }
  }

  size_t count() const { return count_; }
  size_t buffer_pages() const { return buffer_pages_; }
  /// The controller's addresses of all pages, buffer by buffer.
  const std::vector<uint64_t>& pages() const { return data_.pages; }
  /// The memory of the PRP lists, divided evenly among the buffers; empty if none needs any.
  const DmaMemory& lists() const { return lists_; }

  std::byte* data(size_t index) const { return data_.data + index * buffer_pages_ * kPageBytes; }

  /// The data pointer of a command for the first `bytes` bytes of a buffer. Writes the buffer's PRP
  /// lists. Precondition: no command in flight uses them.
  DataPointer pointer(size_t index, uint64_t bytes) const;

 private:
  size_t count_;
  size_t buffer_pages_;
  size_t list_pages_;
  DmaMemory data_;
  DmaMemory lists_;
};

}  // namespace lsm::nvme
