// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// gpu_selftest: whether the GPU works, the tests of GPU code on it, and the native bench, each in a
// process of its own, so that one that breaks the GPU's context leaves the others theirs.
//
//   gpu_selftest              all three
//   gpu_selftest --check      one of them, in this process; --tests and --bench check the GPU first
//   gpu_selftest --bench gathers          or tiers, planner, sampler: a part of it
//   gpu_selftest --tests -tc='*gathers*'   takes the options of doctest
//
// Exit status: 0; 1: something failed; 77: no driver or no GPU.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "tests/gpu/bench.h"
#include "tests/gpu/self_check.h"

namespace lsm::testing {
namespace {

constexpr unsigned kCheckSecs = 60;  // SIGALRM ends what takes longer
constexpr unsigned kTestSecs = 400, kBenchSecs = 240;

int run_tests(int argc, char** argv) {
  alarm(kTestSecs);
  doctest::Context context;
  context.setOption("duration", true);
  context.applyCommandLine(argc, argv);
  return context.run() == 0 ? 0 : 1;
}

/// All parts of the bench, or the one of this name.
int run_bench(const std::string& only) {
  alarm(kBenchSecs);
  int status = 0;
  const std::pair<const char*, void (*)(const BenchSizes&)> parts[] = {{"gathers", bench_gathers},
                                                                       {"tiers", bench_tiers},
                                                                       {"planner", bench_planner},
                                                                       {"sampler", bench_sampler}};
  for (const auto& [name, part] : parts) {
    if (!only.empty() && only != name) continue;
    try {
      part({});
    } catch (const std::exception& error) {
      std::printf("the bench failed: %s\n", error.what());
      std::fflush(stdout);
      status = 1;
    }
  }
  return status;
}

int run_check() {
  alarm(kCheckSecs);
  const int status = check_gpu();
  std::fflush(stdout);
  return status;
}

/// The exit status of `part` in a child; this process leaves the GPU alone.
int in_child(const char* name, const std::function<int()>& part) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("fork");
    return 1;
  }
  if (child == 0) {
    const int status = part();
    std::fflush(stdout);
    _exit(status);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::printf("%s ended by signal %d (%s)\n", name, WTERMSIG(status),
              WTERMSIG(status) == SIGALRM ? "it took too long" : strsignal(WTERMSIG(status)));
  return 1;
}

int run_all(int argc, char** argv) {
  const int works = in_child("the self-check", run_check);
  if (works != 0) return works;
  const int tests = in_child("the tests", [&] { return run_tests(argc, argv); });
  const int bench = in_child("the bench", [] { return run_bench(""); });
  return tests != 0 || bench != 0 ? 1 : 0;
}

}  // namespace
}  // namespace lsm::testing

int main(int argc, char** argv) {
  using namespace lsm::testing;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);  // as lsm.core.device
  const char* const part = argc > 1 ? argv[1] : "";
  const bool tests = std::strcmp(part, "--tests") == 0, bench = std::strcmp(part, "--bench") == 0;
  if (std::strcmp(part, "--check") != 0 && !tests && !bench) return run_all(argc, argv);
  const int works = run_check();
  if (works != 0) return works;
  return tests ? run_tests(argc, argv) : bench ? run_bench(argc > 2 ? argv[2] : "") : 0;
}
