// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The transports to real controllers, as far as they go without one: PCI functions made of files,
// the kernel module libnvm played, memory laid out as badly as a kernel may.
#include <doctest/doctest.h>
#include <fcntl.h>

#include <cstring>

#include "kernels/core/buffer.h"
#include "kernels/io/nvme/engine/namespaces.h"
#include "kernels/io/nvme/engine/nvme_transfers.h"
#include "kernels/io/nvme/transport/dma_arena.h"
#include "kernels/io/nvme/transport/libnvm_transport.h"
#include "kernels/io/nvme/transport/pci_function.h"
#include "tests/native/fake_function.h"
#include "tests/native/fake_libnvm.h"
#include "tests/native/nvme_checks.h"
#include "tests/native/testing.h"

namespace lsm::testing {
namespace {

namespace fs = std::filesystem;
using namespace lsm::nvme;
using checks::KnownNamespace;

/// A controller behind the fake module: one namespace of memory.
class LibnvmMachine {
 public:
  explicit LibnvmMachine(const ControllerOptions& options = {})
      : options_(options), image_(1 << 20) {
    Random random(3);
    for (std::byte& byte : image_) byte = static_cast<std::byte>(random.next());
  }

  std::unique_ptr<LibnvmTransport> open() {
    std::vector<EmulatedNamespace> namespaces = {{std::make_shared<MemoryBlocks>(image_), 512}};
    return std::make_unique<LibnvmTransport>(
        std::make_unique<FakeLibnvmNode>(module, options_, std::move(namespaces)));
  }

  std::span<const std::byte> image() const { return image_; }
  size_t num_mappings() const { return module->host.size() + module->device.size(); }

  const std::shared_ptr<FakeModuleState> module = std::make_shared<FakeModuleState>();

 private:
  const ControllerOptions options_;
  std::vector<std::byte> image_;
};

TEST_CASE("nvme: reads through libnvm") {
  LibnvmMachine machine;
  {
    Controller controller(machine.open());
    const KnownNamespace space{controller.identify_namespace(1), machine.image()};
    checks::check_controller(controller, {&space, 1}, 4, 500);
    LSM_EXPECT(machine.num_mappings() > 0, "nothing was mapped");
  }
  LSM_EXPECT(machine.num_mappings() == 0, machine.num_mappings(), " mappings were left");
}

/// Bytes that training writes through the module are in the file behind its controller.
TEST_CASE("nvme: writes through libnvm") {
  constexpr int64_t kPage = 4096;
  constexpr int64_t kBytes = 37 * kPage;
  const FakeFunction files;
  const std::string path = (files.folder / "blocks").string();
  Random random(4);
  std::string content(128 * kPage, '\0');
  for (char& byte : content) byte = static_cast<char>(random.next());
  files.write("blocks", content);
  const auto module = std::make_shared<FakeModuleState>();
  {
    std::vector<EmulatedNamespace> namespaces = {
        {std::make_shared<FileBlocks>(path, 0, true), 512}};
    OpenTransports opened;
    opened.transports.push_back(std::make_unique<LibnvmTransport>(
        std::make_unique<FakeLibnvmNode>(module, ControllerOptions{}, std::move(namespaces))));
    opened.namespaces.push_back({0, 1});
    NvmeTransfers transfers("/dev/libnvm0", std::move(opened),
                            {.queue_depth = 5, .chunk_bytes = 4 * kPage}, 10.0);
    LSM_EXPECT(transfers.num_bytes() == 128 * kPage, transfers.num_bytes());
    const HostBlock frame(kBytes);
    std::memcpy(frame.data(), content.data() + 64 * kPage, kBytes);
    const SwapSums sums = transfers.swap({frame.data(), kBytes, 2 * kPage, 80 * kPage}, 20.0);
    LSM_EXPECT(std::memcmp(frame.data(), content.data() + 80 * kPage, kBytes) == 0, "wrong bytes");
    LSM_EXPECT(transfers.swap({frame.data(), kBytes, {}, 2 * kPage}, 20.0).read == sums.written,
               "other bytes were written");
    transfers.sync();
    const TransferStats& stats = transfers.stats();
    LSM_EXPECT(stats.commands == 30 && stats.doorbells < 30, stats.commands, " commands, ",
               stats.doorbells, " doorbells");
    LSM_EXPECT(!module->host.empty(), "nothing was mapped");
  }
  LSM_EXPECT(module->host.empty(), module->host.size(), " mappings were left");
  content.replace(2 * kPage, kBytes, content, 64 * kPage, kBytes);
  LSM_EXPECT(files.read("blocks") == content, "the file differs");
}

/// The module only unmaps for the thread that mapped, whichever threads ask.
TEST_CASE("nvme: libnvm unmaps in the thread that mapped") {
  LibnvmMachine machine;
  std::unique_ptr<LibnvmTransport> transport;
  DmaMemory memory;
  std::thread([&] { transport = machine.open(); }).join();
  std::thread([&] { memory = transport->allocate(3 << 20, DmaShape::kPages); }).join();
  std::thread([&] { transport.reset(); }).join();
  LSM_EXPECT(machine.num_mappings() == 1, "memory that is in use was unmapped");
  std::thread([&] { memory = {}; }).join();
  LSM_EXPECT(machine.num_mappings() == 0, machine.num_mappings(), " mappings were left");
}

/// Reads land in memory that was mapped as a GPU's, in pages of 64 KiB.
TEST_CASE("nvme: reads into GPU memory through libnvm") {
  LibnvmMachine machine;
  constexpr size_t kBytes = 4 * kGpuPageBytes;
  const HostBlock block(kBytes + kGpuPageBytes);
  const size_t skip = -reinterpret_cast<uintptr_t>(block.data()) % kGpuPageBytes;
  std::byte* const gpu = block.data() + skip;
  auto transport = machine.open();
  expect_throw<ArgumentError>("multiples of 65536",
                              [&] { transport->map_gpu_memory(gpu + 4096, kGpuPageBytes); });
  expect_throw<ArgumentError>("multiples of 65536",
                              [&] { transport->map_gpu_memory(gpu, kBytes - 4096); });
  {
    const DmaMemory memory = transport->map_gpu_memory(gpu, kBytes);
    LSM_EXPECT(memory.data == gpu && memory.pages.size() == kBytes / kPageBytes, "wrong extent");
    Controller controller(std::move(transport));
    const auto queue = controller.create_queue(1, {2, 2});
    const DmaMemory list = controller.transport().allocate(kPageBytes, DmaShape::kPages);
    const DataPointer pointer = make_data_pointer(
        0, kBytes, [&](uint32_t page) { return memory.pages[page]; },
        reinterpret_cast<uint64_t*>(list.data), [&](uint32_t page) { return list.pages[page]; });
    submit_batch(queue->pair(), 1,
                 [&](uint32_t) { return ReadCommand::make(0, {1, kBytes / 512, 8}, pointer); });
    uint16_t status = 0xffff;
    const Deadline deadline(20);
    while (take_completions(queue->pair(), 1,
                            [&](const Completion& entry) { status = entry.status(); }) == 0) {
      LSM_EXPECT(!deadline.passed(), "no completion");
    }
    LSM_EXPECT(status == 0, describe_status(status));
    LSM_EXPECT(std::memcmp(gpu, machine.image().data() + 4096, kBytes) == 0, "wrong bytes");
  }
  LSM_EXPECT(machine.num_mappings() == 0, machine.num_mappings(), " mappings were left");
}

TEST_CASE("nvme: libnvm without GPU support") {
  LibnvmMachine machine;
  const HostBlock block(2 * kGpuPageBytes);
  const size_t skip = -reinterpret_cast<uintptr_t>(block.data()) % kGpuPageBytes;
  FakeLibnvmNode node(machine.module, {}, {});
  LSM_EXPECT(gpu_support_problem(node).empty(), gpu_support_problem(node));
  machine.module->gpu_support = false;
  LSM_EXPECT(gpu_support_problem(node).find("built without GPU support") != std::string::npos,
             gpu_support_problem(node));
  const auto transport = machine.open();
  expect_throw<std::runtime_error>("built without GPU support", [&] {
    transport->map_gpu_memory(block.data() + skip, kGpuPageBytes);
  });
}

/// Where memory is short the module maps less than it was asked for, and says nothing.
TEST_CASE("nvme: libnvm maps a part") {
  LibnvmMachine machine;
  machine.module->most_pages = 100;
  expect_throw<std::runtime_error>("mapped only 409600 of 2097152 bytes",
                                   [&] { machine.open()->allocate(4096, DmaShape::kPages); });
  LSM_EXPECT(machine.num_mappings() == 0, "the part that was mapped is left");
}

TEST_CASE("nvme: registers through libnvm") {
  LibnvmMachine wide({.doorbell_stride_shift = 6});
  wide.module->register_bytes = 64 << 10;
  LSM_EXPECT(wide.open()->register_bytes() == 40'960, wide.open()->register_bytes());
  wide.module->register_bytes = 8192;
  LSM_EXPECT(wide.open()->register_bytes() == 8192, wide.open()->register_bytes());
  LSM_EXPECT(wide.module->mapped_register_bytes == 8192, wide.module->mapped_register_bytes);
  wide.module->register_bytes = 4096;
  expect_throw<std::runtime_error>("has no 8192 bytes of registers", [&] { wide.open(); });
}

TEST_CASE("nvme: libnvm is absent") {
  expect_throw<SystemError>("no such device node: the kernel module libnvm is",
                            [] { open_libnvm_node("/dev/libnvm-that-is-not-there"); });
  LSM_EXPECT(libnvm_problem("/dev/null").find("is no device of the kernel module libnvm") !=
                 std::string::npos,
             libnvm_problem("/dev/null"));
  // A file would be mapped, and reading registers beyond its end kill the process.
  const FakeFunction file;
  const std::string path = (file.folder / "enable").string();
  expect_throw<SystemError>("is no device of the kernel module libnvm",
                            [&] { open_libnvm_node(path); });
  const FileHandle holder(path, O_RDWR);
  holder.lock();
  expect_throw<SystemError>("in use by another process", [&] { open_libnvm_node(path); });
  LSM_EXPECT(file.read("enable") == "0", "it was touched");
}

/// Pieces whose pages have runs of `run` pages, in descending order.
std::shared_ptr<DmaArena> scattered(size_t run, int* num_pieces) {
  return DmaArena::create([run, num_pieces](size_t bytes) {
    auto block = std::make_shared<HostBlock>(bytes);
    std::memset(block->data(), 0xee, bytes);
    DmaMemory memory{block->data(), bytes, {}, block};
    const uint64_t base = uint64_t{1} << (32 + ++*num_pieces);
    const size_t count = bytes / kPageBytes;
    for (size_t page = 0; page < count; ++page) {
      const size_t runs_left = (count - page - 1) / run;
      memory.pages.push_back(base + (2 * runs_left * run + page % run) * kPageBytes);
    }
    return memory;
  });
}

TEST_CASE("nvme: memory in runs") {
  int num_pieces = 0;
  const auto arena = scattered(16, &num_pieces);
  const DmaMemory page = arena->allocate(1, DmaShape::kContiguous);
  LSM_EXPECT(page.bytes == kPageBytes && page.data[0] == std::byte{0}, "not a zeroed page");
  std::vector<DmaMemory> runs;
  for (int i = 0; i < 31; ++i) runs.push_back(arena->allocate(65'536, DmaShape::kContiguous));
  for (const DmaMemory& run : runs) {
    for (size_t i = 1; i < run.pages.size(); ++i) {
      LSM_EXPECT(run.pages[i] == run.pages[i - 1] + kPageBytes, "page ", i, " does not follow");
    }
  }
  LSM_EXPECT(num_pieces == 1, "31 runs and a page take a piece, got ", num_pieces);
  std::byte* const first = runs[0].data;
  runs.erase(runs.begin());
  const DmaMemory again = arena->allocate(65'536, DmaShape::kContiguous);
  LSM_EXPECT(again.data == first && num_pieces == 1, "what was given back is not used again");
  const DmaMemory large = arena->allocate(5 << 20, DmaShape::kPages);
  LSM_EXPECT(large.bytes == 5 << 20 && large.pages.size() == 1280 && num_pieces == 2, num_pieces);
  expect_throw<std::runtime_error>("no 131072 bytes of memory in one run of physical addresses",
                                   [&] { arena->allocate(131'072, DmaShape::kContiguous); });
}

TEST_CASE("nvme: a PCI function is taken and given back") {
  const FakeFunction fake;
  LSM_EXPECT(find_controllers(fake.root) == std::vector<std::string>{FakeFunction::kAddress}, "");
  {
    const PciFunction function(FakeFunction::kAddress, fake.root);
    LSM_EXPECT(function.registers().size() == 16 << 10, function.registers().size());
    function.registers().data()[0x14] = std::byte{1};
    LSM_EXPECT(fake.read("resource0")[0x14] == 1, "BAR0 is not mapped");
    LSM_EXPECT(fake.read("enable") == "1", "the function was not enabled");
    LSM_EXPECT(fake.command() == 0x02, "memory without bus mastering: got ", fake.command());
    function.start_mastering();
    LSM_EXPECT(fake.command() == 0x06, "memory and bus mastering: got ", fake.command());
    expect_throw<SystemError>("in use by another process",
                              [&] { const PciFunction second(FakeFunction::kAddress, fake.root); });
  }
  LSM_EXPECT(fake.command() == 0x02, "bus mastering goes on: got ", fake.command());
  fake.write("config", std::string("\x4d\x14\x00\x00\x06\x04\x00\x00", 8));
  const PciFunction left_at_work(FakeFunction::kAddress, fake.root);
  LSM_EXPECT(fake.command() == 0x02, "what a killed process left goes on: got ", fake.command());
}

TEST_CASE("nvme: PCI functions that cannot be driven") {
  const auto refused = [](const FakeFunction& fake, const char* why) {
    const unsigned before = fake.command();
    expect_throw<std::exception>(
        why, [&] { const PciFunction function(FakeFunction::kAddress, fake.root); });
    LSM_EXPECT(fake.command() == before && fake.read("enable") == "0", "it was touched: ", why);
  };
  const FakeFunction bound;
  fs::create_directories(fs::path(bound.root) / "bus/pci/drivers/nvme");
  fs::create_directory_symlink(fs::path(bound.root) / "bus/pci/drivers/nvme",
                               bound.folder / "driver");
  refused(bound, "in use by the kernel driver nvme");
  refused(FakeFunction("0x020000"), "is no NVMe controller: expected PCI class 0x010802");
  const FakeFunction translated;
  translated.write("iommu_group/type", "DMA-FQ\n");
  refused(translated, "behind an IOMMU");
  translated.write("iommu_group/type", "identity\n");
  const PciFunction function(FakeFunction::kAddress, translated.root);
  expect_throw<ArgumentError>("NVMe controllers here: 0000:01:00.0",
                              [&] { check_drivable("0000:02:00.0", translated.root); });
  expect_throw<ArgumentError>("no PCI function at ../devices",
                              [&] { check_drivable("../devices", translated.root); });
  const FakeFunction lost;
  lost.write("resource", "0x0000000000000000 0x0000000000000000 0x0000000000000000\n");
  expect_throw<std::runtime_error>("gave its registers (BAR0) no address", [&] {
    const PciFunction unassigned(FakeFunction::kAddress, lost.root);
  });
  LSM_EXPECT(lost.read("enable") == "0", "it was touched");
}

TEST_CASE("nvme: names of namespaces") {
  const NamespaceName plain = parse_namespace_name("0000:01:00.0");
  LSM_EXPECT(plain.drive == "0000:01:00.0" && plain.id == 1, plain.drive);
  const NamespaceName second = parse_namespace_name("/dev/libnvm0@12");
  LSM_EXPECT(second.drive == "/dev/libnvm0" && second.id == 12, second.drive);
  for (const char* bad : {"0000:01:00.0@", "0000:01:00.0@0", "0000:01:00.0@x", "a@1b", "a@-1"}) {
    expect_throw<ArgumentError>("expected DRIVE or DRIVE@NAMESPACE",
                                [&] { parse_namespace_name(bad); });
  }
}

}  // namespace

}  // namespace lsm::testing
