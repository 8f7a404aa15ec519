// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "comm/gpu_memory.h"

#include <cstring>

#include "kernels/core/cuda_check.h"

namespace lsm::comm {
namespace {

// An allocation that is no multiple of this may share its pages with others. A process that maps it
// then maps those, too, at another offset (CUDA Programming Guide, interprocess communication).
constexpr size_t kPageBytes = size_t{2} << 20;

class CudaBlock final : public ExportedBlock {
 public:
  CudaBlock(int device, size_t bytes)
      : device_(device), bytes_((bytes + kPageBytes - 1) / kPageBytes * kPageBytes) {
    const RelaxedCapture relaxed;
    use_device(device);
    void* memory = nullptr;
    const std::string what = concat("allocate ", bytes_, " bytes of GPU memory for batches");
    check_cuda(cudaMalloc(&memory, bytes_), what.c_str());
    data_ = static_cast<std::byte*>(memory);
    const cudaError_t error = cudaIpcGetMemHandle(&handle_, memory);
    if (error == cudaSuccess) return;
    cudaFree(memory);
    throw CudaError(error, "export GPU memory to other processes");
  }
  ~CudaBlock() override {
    const OwnerEnd end(device_);
    cudaFree(data_);
  }

  std::byte* data() const override { return data_; }
  size_t size() const override { return bytes_; }
  BlockHandle handle() const override {
    static_assert(sizeof(BlockHandle) == sizeof(cudaIpcMemHandle_t));
    BlockHandle words;
    std::memcpy(&words, &handle_, sizeof words);
    return words;
  }

 private:
  const int device_;
  const size_t bytes_;
  std::byte* data_ = nullptr;
  cudaIpcMemHandle_t handle_;
};

class CudaMapping final : public MappedBlock {
 public:
  CudaMapping(int device, const BlockHandle& words, size_t bytes) : device_(device), bytes_(bytes) {
    const RelaxedCapture relaxed;
    use_device(device);
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, &words, sizeof handle);
    void* memory = nullptr;
    // Where the memory is another GPU's, this gives the current one access to it.
    check_cuda(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
               "map GPU memory of another process");
    data_ = static_cast<std::byte*>(memory);
  }
  ~CudaMapping() override {
    const OwnerEnd end(device_);
    cudaIpcCloseMemHandle(data_);
  }

  std::byte* data() const override { return data_; }
  size_t size() const override { return bytes_; }

 private:
  const int device_;
  const size_t bytes_;
  std::byte* data_ = nullptr;
};

class EventFence final : public Fence {
 public:
  explicit EventFence(int device) : device_(device), event_(device) {
    event_.record(cudaStreamLegacy);
  }
  bool passed() override {
    use_device(device_);
    return event_.done("the use of a batch's memory");
  }

 private:
  const int device_;
  CudaEvent event_;
};

class CudaMemory final : public GpuMemory {
 public:
  explicit CudaMemory(int device) : device_(device) {}

  int device() const override { return device_; }
  std::unique_ptr<ExportedBlock> allocate(size_t bytes) override {
    return std::make_unique<CudaBlock>(device_, bytes);
  }
  std::unique_ptr<MappedBlock> map(const BlockHandle& handle, size_t bytes) override {
    return std::make_unique<CudaMapping>(device_, handle, bytes);
  }
  std::unique_ptr<Fence> fence() override { return std::make_unique<EventFence>(device_); }

 private:
  const int device_;
};

}  // namespace

std::unique_ptr<GpuMemory> make_gpu_memory(int device) {
  return std::make_unique<CudaMemory>(device);
}

std::string peer_access_problem(int device, const std::string& bus_id) {
  int peer = 0;
  int can_access = 0;
  if (cudaDeviceGetByPCIBusId(&peer, bus_id.c_str()) != cudaSuccess) {
    cudaGetLastError();  // it is not for others to find
    return concat("peer access unavailable: this process does not see GPU ", bus_id,
                  " (CUDA_VISIBLE_DEVICES)");
  }
  if (peer == device) return "";
  const cudaError_t error = cudaDeviceCanAccessPeer(&can_access, device, peer);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return concat("peer access unavailable: ", cudaGetErrorString(error));
  }
  if (can_access != 0) return "";
  return concat("peer access unavailable: GPU ", device, " cannot write to GPU ", bus_id,
                " (`nvidia-smi topo -p2p w`)");
}

}  // namespace lsm::comm
