// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Does a GPU work at all: before anything is blamed on our code.
#pragma once

namespace lsm::testing {

inline constexpr int kNoGpu = 77;  // exit status: neither passed nor failed

/// Allocates, runs a kernel and copies back; prints a line about the GPU, or about the first thing
/// that went wrong. Returns 0, kNoGpu without a driver or GPU, or 1 if a GPU does not work.
int check_gpu();

}  // namespace lsm::testing
