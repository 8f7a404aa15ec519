// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Calls that fail, and what is left behind then.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

namespace emulated {

/// The n-th call from now on fails, of those that may and in whichever thread; 0: none. A call that
/// frees, destroys or unmaps does not fail, and an event that is asked for counts when it has
/// passed.
void fail_call(int64_t n);
/// Calls that may fail since fail_call().
int64_t num_calls();

/// Counts a call. Returns whether it is the one that fails.
bool fails();
/// Remembers the error for cudaGetLastError(). Returns it.
cudaError_t failed(cudaError_t error);

#define EMULATED_MAY_FAIL(ERROR) \
  if (::emulated::fails()) return ::emulated::failed(ERROR)

/// Number of things that were made and have not been let go.
struct LiveCounts {
  std::atomic<int64_t> memory{0};  // of a device, or page-locked
  std::atomic<int64_t> pools{0};
  std::atomic<int64_t> ranges{0};  // of registered host memory
  std::atomic<int64_t> mappings{0};
  std::atomic<int64_t> streams{0};
  std::atomic<int64_t> events{0};

  int64_t sum() const { return memory + pools + ranges + mappings + streams + events; }
};

LiveCounts& live_counts();

}  // namespace emulated
