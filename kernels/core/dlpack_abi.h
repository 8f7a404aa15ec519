// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The binary layout of DLPack's unversioned exchange structures (DLPack specification, C API),
// which an object's __dlpack__() puts into a capsule named "dltensor".
#pragma once

#include <cstdint>

namespace lsm::dlpack {

enum DeviceType : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

struct Tensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t type_lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null means row-major and contiguous
  uint64_t byte_offset;
};

struct ManagedTensor {
  Tensor tensor;
  void* manager;
  void (*deleter)(ManagedTensor*);
};

}  // namespace lsm::dlpack
