// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Runs the native tests: all of them, or those whose names contain the argument. They are made for
// builds with sanitizers, which end the process with an error at the first report.
#include "tests/native/testing.h"

int main(int argc, char** argv) {
  using namespace lsm::testing;
  return run_tests(
      argc, argv,
      {core_tests(), storage_tests(), nvme_tests(), nvme_worker_tests(), nvme_fuzz_tests(),
       nvme_refusal_tests(), nvme_transport_tests(), sampler_tests(), planner_tests(),
       prefetch_tests(), gpu_twin_tests(), pipeline_tests(), mailbox_tests(), gpu_pool_tests()});
}
