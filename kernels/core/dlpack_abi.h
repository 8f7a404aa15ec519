// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The binary layout of DLPack's exchange structures (DLPack specification, C API): ManagedTensor is
// in the capsule "dltensor" of an object's __dlpack__(), ExchangeApi in the capsule
// "dlpack_exchange_api" of a type's __dlpack_c_exchange_api__.
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

struct ExchangeApi {
  uint32_t major_version;
  uint32_t minor_version;
  ExchangeApi* earlier;
  void* allocate;
  void* managed_from_object;
  void* managed_to_object;
  // Fills in a view of the object's memory. Returns 0; or -1, with a Python exception set.
  int (*view_of_object)(void* object, Tensor* view);
  void* current_stream;
};

}  // namespace lsm::dlpack
