// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Shared by the tests on a GPU. On the emulated one they run on its second device: a thread that
// chose none is on the first, so that a missing cudaSetDevice() is found.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "kernels/core/cuda_check.h"
#include "tests/native/gpu_checks.h"

namespace lsm::testing {

#if defined(LSM_EMULATED_GPU)
inline constexpr int kDevice = 1;
/// True if kernels round as the host does: the compiler of a GPU contracts sums of products.
inline constexpr bool kRoundsAsHost = true;
#else
inline constexpr int kDevice = 0;
inline constexpr bool kRoundsAsHost = false;
#endif

/// True if the run is short: LSM_EMULATED_PART is set, as in CI.
bool is_part();

/// Memory of kDevice, filled from the host and read back in a stream of its own.
class GpuBytes {
 public:
  explicit GpuBytes(size_t bytes);
  explicit GpuBytes(std::span<const std::byte> contents);
  ~GpuBytes();
  GpuBytes(const GpuBytes&) = delete;
  GpuBytes& operator=(const GpuBytes&) = delete;

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  std::vector<std::byte> fetch() const;

 private:
  const size_t bytes_;
  std::byte* data_ = nullptr;
};

/// Rows in memory of kDevice, staging page-locked.
class GpuMemory final : public CheckedMemory {
 public:
  std::byte* rows(size_t bytes) override;
  std::byte* staging(std::span<const std::byte> contents) override;
  std::byte* resident(std::span<const std::byte> contents) override;
  std::vector<std::byte> fetch(const std::byte* rows, size_t bytes) override;

 private:
  std::map<const std::byte*, std::unique_ptr<GpuBytes>> rows_;
  std::vector<std::unique_ptr<PinnedBlock>> staging_;
};

CheckedExecutor make_executor(const GpuExecutorOptions& options, Storage& storage,
                              const PlannerCase& planned);
/// That replays plans where they were made.
CheckedExecutor make_planning_executor(const GpuExecutorOptions& options, Storage& storage,
                                       const PlannerCase& planned);

/// Ends an owner in a thread that never chose a device, and is on the first.
template <class Owner>
void end_elsewhere(std::unique_ptr<Owner> owner) {
  std::thread([&] { owner.reset(); }).join();
}

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace lsm::testing
