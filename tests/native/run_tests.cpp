// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/native/testing.h"

#ifdef __SANITIZE_THREAD__
/// An exception that one thread stores and another rethrows goes away with the last reference. The
/// count of these is in libstdc++, which the sanitizer does not see into: it cannot know that the
/// last one to let go comes after all who read the message. Reports with this function in a stack
/// are about that memory and no other.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
#endif

namespace lsm::testing {

int run_tests(int argc, char** argv, const std::vector<std::vector<Test>>& groups) {
  constexpr unsigned kMaxSecs = 300;  // of the whole run; SIGALRM then ends it
  alarm(kMaxSecs);
  int num_run = 0, num_failed = 0;
  for (const auto& tests : groups) {
    for (const Test& test : tests) {
      if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) continue;
      const auto start = std::chrono::steady_clock::now();
      std::string error;
      try {
        test.run();
      } catch (const std::exception& caught) {
        error = caught.what();
      }
      const std::chrono::duration<double> secs = std::chrono::steady_clock::now() - start;
      std::printf("%-55s %6.2f s  %s\n", test.name, secs.count(),
                  error.empty() ? "passed" : ("FAILED: " + error).c_str());
      std::fflush(stdout);
      ++num_run;
      num_failed += error.empty() ? 0 : 1;
    }
  }
  std::printf("%d native tests, %d failed\n", num_run, num_failed);
  return num_run > 0 && num_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace lsm::testing
