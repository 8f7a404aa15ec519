// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Kernels: the warps of a grid in random order on a few threads, the lanes of a warp as fibers.
#pragma once

#include <cuda_runtime.h>

namespace emulated {

/// Runs all threads of the grid, and returns when they have ended. By the thread of a stream.
/// `holds_sms`: true if it runs during training, which then has to wait for SMs.
void run_kernel(const char* kernel, int device, const LaunchShape& shape, const LaunchBody& body,
                bool holds_sms);

}  // namespace emulated
