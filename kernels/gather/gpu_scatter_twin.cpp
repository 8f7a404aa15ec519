// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/gpu_scatter.h"

#include "kernels/core/check.h"
#include "kernels/core/host_backend.h"
#include "kernels/gather/scatter_on_backend.h"

namespace lsm::comm {

std::unique_ptr<DeviceDelivery> make_twin_delivery() {
  return std::make_unique<BackendDelivery<HostBackend>>(std::make_unique<HostBackend>());
}

#if !LSM_HAS_CUDA
std::unique_ptr<DeviceDelivery> make_device_delivery(int, double) {
  throw_without_cuda("an exchange of rows between GPUs");
}
#endif

}  // namespace lsm::comm
