// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/native/testing.h"

namespace lsm::testing {

namespace fs = std::filesystem;

/// A PCI function made of files.
class FakeFunction {
 public:
  explicit FakeFunction(const std::string& device_class = "0x010802") {
    std::string name = (fs::temp_directory_path() / "lsm-sysfs-XXXXXX").string();
    LSM_EXPECT(mkdtemp(name.data()) != nullptr, name);
    root = name;
    fs::permissions(root, fs::perms(0755));  // others may look
    folder = fs::path(root) / "bus/pci/devices" / kAddress;
    fs::create_directories(folder);
    write("class", device_class + "\n");
    write("enable", "0");
    write("config", std::string("\x4d\x14\x00\x00\x00\x04\x00\x00", 8));
    write("resource", "0x00000000fe000000 0x00000000fe003fff 0x0000000000140204\n");
    write("resource0", std::string(16 << 10, '\0'));
  }
  ~FakeFunction() { fs::remove_all(root); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(folder / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  unsigned command() const { return static_cast<unsigned char>(read("config")[4]); }

  static constexpr const char* kAddress = "0000:01:00.0";
  std::string root;
  fs::path folder;
};

}  // namespace lsm::testing
