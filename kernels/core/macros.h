// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Marks functions that are compiled by the host compiler and by nvcc alike.
#pragma once

#if defined(__CUDACC__)
#define LSM_HOST_DEVICE __host__ __device__
#else
#define LSM_HOST_DEVICE
#endif
