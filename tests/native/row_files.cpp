// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "kernels/io/engines/io_uring_storage.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

std::filesystem::path new_directory() {
  std::string name = (std::filesystem::temp_directory_path() / "lsm-native-XXXXXX").string();
  LSM_EXPECT(mkdtemp(name.data()) != nullptr, name, ": ", std::strerror(errno));
  return name;
}

// A lambda or an initializer could be constexpr: the compiler would run it, in seconds.
std::vector<std::byte> random_bytes() {
  std::vector<std::byte> bytes(kRandomBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(mix64(i) >> 56);
  return bytes;
}

}  // namespace

const std::vector<std::byte>& bytes_of_rows() {
  static const std::vector<std::byte> kBytes = random_bytes();
  return kBytes;
}

RowFiles::RowFiles(const RowLayout& layout) : layout_(layout), directory_(new_directory()) {
  std::vector<std::vector<char>> contents(static_cast<size_t>(layout.num_files));
  for (int64_t row = 0; row < layout.num_rows; ++row) {
    layout.for_each_run(row, [&](int64_t file, int64_t offset, int64_t length, int64_t in_row) {
      auto& bytes = contents[static_cast<size_t>(file)];
      bytes.resize(std::max(bytes.size(), static_cast<size_t>(offset + length)));
      const auto whole = bytes_of(row, static_cast<size_t>(layout.row_bytes));
      std::memcpy(&bytes[static_cast<size_t>(offset)], &whole[static_cast<size_t>(in_row)], length);
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
