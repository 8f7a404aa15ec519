// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "tests/emulated/tests.h"

namespace lsm::testing {

bool is_part() {
  return std::getenv("LSM_EMULATED_PART") != nullptr;
}

GpuBytes::GpuBytes(size_t bytes) : bytes_(bytes) {
  use_device(kDevice);
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes > 0 ? bytes : 1), "allocate for a test");
  data_ = static_cast<std::byte*>(memory);
}

GpuBytes::GpuBytes(std::span<const std::byte> contents) : GpuBytes(contents.size()) {
  const CudaStream stream(kDevice);
  check_cuda(cudaMemcpyAsync(data_, contents.data(), contents.size(), cudaMemcpyHostToDevice,
                             stream.get()),
             "fill for a test");
  check_cuda(cudaStreamSynchronize(stream.get()), "fill for a test");
}

GpuBytes::~GpuBytes() {
  const OwnerEnd end(kDevice);
  cudaFree(data_);
}

std::vector<std::byte> GpuBytes::fetch() const {
  const CudaStream stream(kDevice);
  std::vector<std::byte> fetched(bytes_);
  check_cuda(cudaMemcpyAsync(fetched.data(), data_, bytes_, cudaMemcpyDeviceToHost, stream.get()),
             "fetch for a test");
  check_cuda(cudaStreamSynchronize(stream.get()), "fetch for a test");
  return fetched;
}

std::byte* GpuMemory::rows(size_t bytes) {
  auto made = std::make_unique<GpuBytes>(bytes);
  std::byte* const data = made->data();
  rows_[data] = std::move(made);
  return data;
}

std::byte* GpuMemory::staging(std::span<const std::byte> contents) {
  auto& block = staging_.emplace_back(std::make_unique<PinnedBlock>(contents.size()));
  std::ranges::copy(contents, block->data());
  return block->data();
}

std::byte* GpuMemory::resident(std::span<const std::byte> contents) {
  auto made = std::make_unique<GpuBytes>(contents);
  std::byte* const data = made->data();
  rows_[data] = std::move(made);
  return data;
}

std::vector<std::byte> GpuMemory::fetch(const std::byte* rows, size_t) {
  return rows_.at(rows)->fetch();
}

CheckedExecutor make_executor(const GpuExecutorOptions& options, Storage& storage,
                              const PlannerCase& planned) {
  return {make_gpu_executor(options, storage, planned.static_ids, planned.constant_ids, kDevice),
          std::make_unique<GpuMemory>()};
}

CheckedExecutor make_planning_executor(const GpuExecutorOptions& options, Storage& storage,
                                       const PlannerCase& planned) {
  CheckedExecutor made = make_executor(options, storage, planned);
  made.sets = cache::make_gpu_set_cache(planned.config, planned.scores, kDevice, kTimeoutSecs);
  return made;
}

}  // namespace lsm::testing
