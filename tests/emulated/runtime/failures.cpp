// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/runtime/failures.h"

#include <utility>

namespace emulated {
namespace {

std::atomic<int64_t> num_made{0};
std::atomic<int64_t> failing{0};
thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

void fail_call(int64_t n) {
  failing = 0;
  num_made = 0;
  failing = n;
}

int64_t num_calls() {
  return num_made;
}

bool fails() {
  return ++num_made == failing;
}

cudaError_t failed(cudaError_t error) {
  last_error = error;
  return error;
}

LiveCounts& live_counts() {
  static LiveCounts counts;
  return counts;
}

}  // namespace emulated

cudaError_t cudaGetLastError() {
  return std::exchange(emulated::last_error, cudaSuccess);
}
