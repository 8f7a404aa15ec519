// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/gather/gpu_scatter.h"

#include "kernels/core/cuda_backend.h"
#include "kernels/gather/scatter_on_backend.h"

namespace lsm::comm {

std::unique_ptr<DeviceDelivery> make_device_delivery(int device, double timeout_secs) {
  return std::make_unique<BackendDelivery<CudaBackend>>(
      std::make_unique<CudaBackend>(device, timeout_secs));
}

}  // namespace lsm::comm
