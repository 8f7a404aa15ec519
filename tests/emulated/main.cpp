// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Runs the tests on the emulated GPU: all of them, or those whose names contain the argument.
#include "tests/emulated/tests.h"

int main(int argc, char** argv) {
  using namespace lsm::testing;
  return run_tests(argc, argv,
                   {emulated_gather_tests(), emulated_memory_tests(), emulated_sampler_tests(),
                    emulated_planner_tests(), emulated_executor_tests(), emulated_nvme_tests()});
}
