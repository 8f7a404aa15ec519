// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Refusals, with words that help: no permission, memory without addresses, controllers
// and namespaces that we cannot use.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/core/buffer.h"
#include "kernels/io/nvme/controller/controller.h"
#include "kernels/io/nvme/emulated/emulated_transport.h"
#include "kernels/io/nvme/transport/libnvm_module.h"
#include "kernels/io/nvme/transport/locked_memory.h"
#include "kernels/io/nvme/transport/pci_function.h"
#include "tests/native/fake_function.h"

namespace lsm::testing {
namespace {

using namespace lsm::nvme;

/// While it lives, permissions of files count, also where the tests run as root.
class OrdinaryUser {
 public:
  OrdinaryUser() : before_(geteuid()) {
    constexpr uid_t kNobody = 65'534;
    if (before_ == 0) LSM_EXPECT(seteuid(kNobody) == 0, "cannot become another user");
  }
  ~OrdinaryUser() {
    if (seteuid(before_) != 0) std::abort();
  }
  OrdinaryUser(const OrdinaryUser&) = delete;
  OrdinaryUser& operator=(const OrdinaryUser&) = delete;

 private:
  const uid_t before_;
};

TEST_CASE("nvme: no permission") {
  const FakeFunction fake;
  for (const char* name : {"config", "resource0"}) {
    const std::string path = (fake.folder / name).string();
    chmod(path.c_str(), 0);
    {
      const OrdinaryUser user;
      expect_throw<SystemError>("; run as root, and without the lockdown of Secure Boot", [&] {
        const PciFunction function(FakeFunction::kAddress, fake.root);
      });
      expect_throw<SystemError>("cannot open: Permission denied; run as root",
                                [&] { open_libnvm_node(path); });
    }
    chmod(path.c_str(), 0666);
    LSM_EXPECT(fake.command() == 0 && fake.read("enable") == "0", "it was touched");
  }
}

/// The kernel shows no physical addresses to those without privilege: zeros.
TEST_CASE("nvme: memory whose addresses are hidden") {
  const FakeFunction folder;
  const std::string procfs = folder.root + "/proc";
  fs::create_directories(procfs + "/self");
  fs::create_directories(procfs + "/sys/vm");
  fs::create_symlink("/dev/zero", procfs + "/self/pagemap");
  constexpr size_t kBytes = 2 << 20;
  const auto allocate = [&] { allocate_locked_memory(kBytes, procfs); };
  expect_throw<std::runtime_error>("run as root", allocate);
  if (map_host_pages(kBytes).huge) return;  // which never move
  std::ofstream(procfs + "/sys/vm/compact_unevictable_allowed") << 1;
  expect_throw<std::runtime_error>("echo 64 > /proc/sys/vm/nr_hugepages", allocate);
}

/// Registers that say what they are told to and never change by themselves.
class StaticTransport final : public Transport {
 public:
  StaticTransport() : registers_(2 * kPageBytes / 4) {
    registers_[kCapabilities / 4] = 1023 | 1u << 16 | 1u << 24;
    registers_[kCapabilities / 4 + 1] = 1u << 5;
    registers_[kVersion / 4] = 0x00010400;
  }

  std::string name() const override { return "a dummy"; }
  uint32_t* registers() override { return registers_.data(); }
  size_t register_bytes() const override { return registers_.size() * 4; }
  DmaMemory allocate(size_t bytes, DmaShape) override {
    const size_t pages = (bytes + kPageBytes - 1) / kPageBytes;
    auto block = std::make_shared<HostBlock>(pages * kPageBytes);
    return {block->data(), pages * kPageBytes, std::vector<uint64_t>(pages), block};
  }

 private:
  std::vector<uint32_t> registers_;
};

/// The error of a controller of which register `offset` reads as `value`.
template <class Error>
void check_register(uint32_t offset, uint32_t value, const char* part) {
  expect_throw<Error>(part, [&] {
    auto transport = std::make_unique<StaticTransport>();
    transport->registers()[offset / 4] = value;
    const Controller controller(std::move(transport), 0.05);
  });
}

TEST_CASE("nvme: controllers that cannot be used") {
  using Failed = std::runtime_error;
  check_register<Failed>(kVersion, 0, "a dummy: this is no NVMe controller");
  check_register<Failed>(kVersion, 0xffffffff, "or it does not respond");
  check_register<Failed>(kCapabilities + 4, 0, "the controller has no NVM command set");
  check_register<Failed>(kCapabilities + 4, 1u << 5 | 2u << 16,
                         "the controller's smallest page is 16384 bytes, and we use 4096");
  check_register<Failed>(kStatusRegister, 0xffffffff, "the controller has gone");
  check_register<Failed>(kStatusRegister, kStatusFatal, "reports a fatal state (CSTS.CFS)");
  check_register<TimeoutError>(kStatusRegister, kStatusReady,
                               "did not report its reset (CSTS.RDY = 0) within 0.5 s");
}

TEST_CASE("nvme: block sizes that cannot be read") {
  const std::vector<std::byte> image(64 << 10);
  const auto source = std::make_shared<MemoryBlocks>(image);
  Controller controller(std::make_unique<EmulatedTransport>(
      "emulated", ControllerOptions{},
      std::vector<EmulatedNamespace>{{source, 8192}, {source, 256}, {source, 4096}}));
  expect_throw<ArgumentError>("namespace 1 has blocks of 2^13 bytes; expected 512 to 4096",
                              [&] { controller.identify_namespace(1); });
  expect_throw<ArgumentError>("namespace 2 has blocks of 2^8 bytes",
                              [&] { controller.identify_namespace(2); });
  LSM_EXPECT(controller.identify_namespace(3).block_bytes == 4096, "the third is fine");
}

}  // namespace

}  // namespace lsm::testing
