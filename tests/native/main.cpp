// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Runs the native tests: all of them, or those whose names contain the argument. They are made for
// builds with sanitizers, which end the process with an error at the first report.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

constexpr unsigned kMaxSecs = 300;  // of the whole run; SIGALRM then ends it

std::filesystem::path new_directory() {
  std::string name = (std::filesystem::temp_directory_path() / "lsm-native-XXXXXX").string();
  LSM_EXPECT(mkdtemp(name.data()) != nullptr, name, ": ", std::strerror(errno));
  return name;
}

}  // namespace

RowFiles::RowFiles(const RowLayout& layout) : layout_(layout), directory_(new_directory()) {
  std::vector<std::vector<char>> contents(static_cast<size_t>(layout.num_files));
  for (int64_t row = 0; row < layout.num_rows; ++row) {
    layout.for_each_run(row, [&](int64_t file, int64_t offset, int64_t length, int64_t in_row) {
      auto& bytes = contents[static_cast<size_t>(file)];
      bytes.resize(std::max(bytes.size(), static_cast<size_t>(offset + length)));
      for (int64_t i = 0; i < length; ++i) {
        bytes[static_cast<size_t>(offset + i)] = static_cast<char>(byte_of(row, in_row + i));
      }
    });
  }
  for (auto& bytes : contents) {
    bytes.resize((bytes.size() + 4095) / 4096 * 4096);
    paths_.push_back((directory_ / ("rows." + std::to_string(paths_.size()))).string());
    std::ofstream out(paths_.back(), std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    LSM_EXPECT(out.good(), paths_.back());
  }
}

// io_uring runs under the thread sanitizer, too. It does not see what the kernel writes, and need
// not: the kernel writes into the slots of one ring, which only the thread that owns it reads.
const std::vector<std::string>& engines() {
  static const std::vector<std::string> kEngines = [] {
    std::vector<std::string> names = {"memory", "mmap", "posix", "nvme"};
    const std::string problem = io_uring_problem();
    if (problem.empty()) {
      names.push_back("io_uring");
    } else {
      std::printf("without io_uring: %s\n", problem.c_str());
    }
    return names;
  }();
  return kEngines;
}

}  // namespace lsm::testing

#ifdef __SANITIZE_THREAD__
/// An exception that one thread stores and another rethrows goes away with the last reference. The
/// count of these is in libstdc++, which the sanitizer does not see into: it cannot know that the
/// last one to let go comes after all who read the message. Reports with this function in a stack
/// are about that memory and no other.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
#endif

int main(int argc, char** argv) {
  using namespace lsm::testing;
  alarm(kMaxSecs);
  int num_run = 0, num_failed = 0;
  for (const auto& tests :
       {core_tests(), storage_tests(), nvme_tests(), nvme_lane_tests(), nvme_fuzz_tests(),
        nvme_refusal_tests(), nvme_transport_tests(), sampler_tests(), planner_tests(),
        prefetch_tests(), device_tests(), pipeline_tests(), mailbox_tests(), device_pool_tests()}) {
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
