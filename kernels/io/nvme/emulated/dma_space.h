// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/core/buffer.h"
#include "kernels/io/nvme/transport/transport.h"

namespace lsm::nvme {

/// The addresses that an emulated controller can reach, and the host memory behind them. Addresses
/// are not pointers, lie above 4 GiB, and descend within a kPages allocation. So code fails that
/// confuses them with pointers, drops upper halves or assumes adjacent pages. Any thread may
/// allocate; the controller translates without a lock.
class DmaSpace : public std::enable_shared_from_this<DmaSpace> {
 public:
  DmaSpace();

  DmaMemory allocate(size_t bytes, DmaShape shape);
  /// Makes whole pages of the caller's reachable, until the result's owner is destroyed.
  DmaMemory map(std::byte* data, size_t bytes, DmaShape shape);

  /// The memory at `address`; null if there is none.
  std::byte* translate(uint64_t address) const {
    const uint64_t page = address / kPageBytes - kFirstPage;
    if (page >= kMaxPages) return nullptr;
    std::byte* memory = table()[page].load(std::memory_order_acquire);
    return memory == nullptr ? nullptr : memory + address % kPageBytes;
  }

  /// The memory of `bytes` bytes from `address` on; null unless it is contiguous.
  std::byte* translate_run(uint64_t address, size_t bytes) const;

 private:
  using Entry = std::atomic<std::byte*>;
  static constexpr uint64_t kFirstPage = (uint64_t{0x2a} << 32) / kPageBytes;
  static constexpr uint64_t kMaxPages = uint64_t{1} << 22;  // 16 GiB

  Entry* table() const { return reinterpret_cast<Entry*>(table_.data()); }
  uint64_t reserve(uint64_t num_pages);
  void release(uint64_t first, uint64_t num_pages);

  const HostBlock table_;  // fresh anonymous memory: all null, and present only where used
  std::mutex mutex_;
  uint64_t next_page_ = 0;
  std::vector<std::pair<uint64_t, uint64_t>> free_;  // first page, number of pages
};

}  // namespace lsm::nvme
