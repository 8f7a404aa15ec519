// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// The only process of a virtual machine with QEMU's NVMe controllers: runs the queue code over the
// transports `sysfs` and `libnvm` against them and compares every byte with the images of their
// namespaces, which lie in /images. tests/guest/test_nvme_guest.py makes the machine and reads the
// results.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <memory>

#include "kernels/io/nvme/transport/libnvm_transport.h"
#include "kernels/io/nvme/transport/pci_function.h"
#include "kernels/io/nvme/transport/sysfs_transport.h"
#include "tests/guest/checks.h"
#include "tests/guest/harness.h"
#include "tests/guest/transfer_checks.h"

namespace lsm::guest {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDevices = "/sys/bus/pci/devices/";
constexpr const char* kDriver = "/sys/bus/pci/drivers/nvme";

std::unique_ptr<nvme::Transport> sysfs(const std::string& address) {
  return std::make_unique<nvme::SysfsTransport>(address);
}

void check_bad_devices(const std::string& address) {
  const std::string known =
      expect_error([] { nvme::check_drivable("0000:ff:1f.7"); }, "no PCI function");
  expect(known.find(address) != std::string::npos,
         "the error does not name what there is: " + known);
  std::string other;
  for (const fs::directory_entry& entry : fs::directory_iterator(kDevices)) {
    std::ifstream(entry.path() / "class") >> other;
    if (other.rfind("0x0108", 0) == 0) continue;
    other = entry.path().filename();
    break;
  }
  expect_error([&] { nvme::check_drivable(other); }, "is no NVMe controller");
}

void check_bound_to(const std::string& address, const std::string& driver) {
  const std::string message =
      expect_error([&] { nvme::check_drivable(address); }, "in use by the kernel driver " + driver);
  expect(message.find(address + "/driver/unbind") != std::string::npos,
         "the error does not say how to unbind: " + message);
}

/// While one process holds the controller, another is refused.
void check_exclusive(const std::string& address) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      const nvme::SysfsTransport transport(address);
    } catch (const SystemError& error) {
      _exit(error.error_number == EBUSY ? 0 : 2);
    } catch (...) {
      _exit(3);
    }
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  expect(status == 0, concat("the second process ended with ", status));
}

/// Memory without huge pages: refused while the kernel may move it, taken when it may not.
void check_locked_pages(const std::string& address, const std::string& image) {
  write_file("/proc/sys/vm/nr_hugepages", "0");
  expect_error([&] { open_drive(sysfs(address), {image}); }, "/proc/sys/vm/nr_hugepages");
  write_file("/proc/sys/vm/compact_unevictable_allowed", "0");
  Drive drive = open_drive(sysfs(address), {image});
  nvme::checks::check_random_reads(*drive.controller, drive.spaces, {64, 64},
                                   nvme::checks::Shape::kContiguous, 500);
}

/// Keeps a deep queue full of reads for ever, and says through `pipe` when the first are done.
[[noreturn]] void read_until_killed(const std::string& address, const std::string& image,
                                    int pipe) {
  const Drive drive = open_drive(sysfs(address), {image});
  nvme::checks::Reader reader(*drive.controller, 1, {256, 1024}, 32 << 10);
  std::mt19937_64 random(1);
  for (;;) {
    std::vector<nvme::checks::Reader::Read> reads;
    while (reads.size() < reader.room()) {
      reads.push_back(nvme::checks::random_read(random, drive.spaces[0], 64));
    }
    reader.submit(reads, nvme::checks::Shape::kContiguous);
    reader.complete(64);
    if (write(pipe, "r", 1) != 1) _exit(2);
  }
}

/// A process is killed while the controller at `address` reads for it.
void kill_reader(const std::string& address, const std::string& image, int after_ms) {
  int ends[2];
  expect(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "no pipe");
  const pid_t child = fork();
  if (child == 0) {
    fcntl(ends[1], F_SETFL, 0);
    try {
      read_until_killed(address, image, ends[1]);
    } catch (const std::exception& error) {
      std::printf("the reader to be killed failed: %s\n", error.what());
      std::fflush(stdout);
      _exit(1);
    }
  }
  close(ends[1]);
  pollfd reading{ends[0], POLLIN, 0};
  const bool reads = poll(&reading, 1, 60'000) == 1 && (reading.revents & POLLIN) != 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  close(ends[0]);
  expect(reads, "the process to be killed did not read within 60 s");
  expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
         concat("the process to be killed ended by itself: ", status));
}

/// Nobody stopped the controller: it masters the bus with reads in its queues. The next process
/// ends both before it takes memory, and gets the right bytes.
void check_start_after_kill(const std::string& address, const std::string& image) {
  for (const int after_ms : {0, 1, 5, 20}) {
    kill_reader(address, image, after_ms);
    const Bytes config = file_bytes(kDevices + address + "/config");
    expect((config.at(4) & 4) != 0, "the killed process left no bus master: nothing to recover");
    Drive drive = open_drive(sysfs(address), {image});
    nvme::checks::check_transfer_lengths(*drive.controller, drive.spaces[0]);
    nvme::checks::check_random_reads(*drive.controller, drive.spaces, {64, 64},
                                     nvme::checks::Shape::kContiguous, 500);
  }
}

/// After our shut-down, or the death of a process of ours, the kernel's driver takes the controller
/// and reads the same bytes.
void check_kernel_takes_over(const std::string& address, const std::string& image) {
  write_file(std::string(kDriver) + "/bind", address);
  std::string device;
  await(
      [&] {
        for (const fs::directory_entry& entry : fs::directory_iterator("/sys/class/block")) {
          if (fs::canonical(entry.path()).string().find(address) == std::string::npos) continue;
          device = "/dev/" + entry.path().filename().string();
        }
        return !device.empty() && fs::exists(device);
      },
      "the kernel's block device");
  expect(file_bytes(device) == file_bytes("/images/" + image), "the kernel reads other bytes");
}

void unbind(const std::string& address) {
  const std::string file = kDevices + address + "/driver/unbind";
  if (fs::exists(file)) write_file(file, address);
}

void run_sysfs(Checks& checks, const std::string& a, const std::string& b, const std::string& c) {
  const bool has_driver = fs::exists(kDriver);
  const char* no_driver = "this kernel has no nvme driver built in";
  checks.run("bad_devices", [&] { check_bad_devices(a); });
  checks.run_if(has_driver, no_driver, "bound", [&] { check_bound_to(a, "nvme"); });
  unbind(a);
  unbind(b);
  checks.run("locked_pages", [&] { check_locked_pages(b, "b1"); });
  write_file("/proc/sys/vm/nr_hugepages", "64");
  {
    Drive drive = open_drive(sysfs(a), {"a1", "a2"});
    checks.run("exclusive", [&] { check_exclusive(a); });
    run_queue_checks(checks, drive);
  }
  run_engine_checks(checks, {"sysfs", a, b});
  unbind(c);
  run_transfer_checks(checks, "sysfs", c);
  checks.run("killed_writer", [&] { check_killed_writer("sysfs", c); });
  checks.run("start_after_kill", [&] { check_start_after_kill(b, "b1"); });
  checks.run_if(has_driver, no_driver, "kernel_takes_over",
                [&] { check_kernel_takes_over(b, "b1"); });
  checks.run_if(has_driver, no_driver, "kernel_takes_over_after_kill", [&] {
    unbind(b);
    kill_reader(b, "b1", 0);
    check_kernel_takes_over(b, "b1");
  });
}

/// The kernel module itself, as far as it goes without a GPU.
void run_libnvm(Checks& checks, const std::vector<std::string>& addresses) {
  std::ranges::for_each(addresses, unbind);
  load_module("/libnvm.ko");
  await([] { return fs::exists("/dev/libnvm2"); }, "/dev/libnvm2");
  checks.run("bound", [&] { check_bound_to(addresses.at(0), "libnvm helper"); });
  checks.run("gpu_support", [] {
    const std::string problem = nvme::libnvm_problem("/dev/libnvm0");
    expect(problem.find("built without GPU support") != std::string::npos, "got: " + problem);
  });
  {
    auto transport =
        std::make_unique<nvme::LibnvmTransport>(nvme::open_libnvm_node("/dev/libnvm0"));
    Drive drive = open_drive(std::move(transport), {"a1", "a2"});
    run_queue_checks(checks, drive);
  }
  run_engine_checks(checks, {"libnvm", "/dev/libnvm0", "/dev/libnvm1"});
  run_transfer_checks(checks, "libnvm", "/dev/libnvm2");
  checks.run("nothing_left_mapped", [] {
    unload_module("libnvm");
    const std::string log = kernel_log();
    expect(log.find("libnvm helper unloaded") != std::string::npos, "not unloaded: " + log);
    expect(log.find("still in use") == std::string::npos, "mappings were left: " + log);
  });
}

/// The lines of /command: variables of the environment, an empty line, arguments.
void run_command(const std::vector<std::string>& addresses) {
  std::ranges::for_each(addresses, unbind);
  write_file("/proc/sys/vm/nr_hugepages", "64");
  std::ifstream file("/command");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::vector<char*> words[2];
  size_t part = 0;
  for (std::string& line : lines) {
    if (line.empty()) {
      part = 1;
    } else {
      words[part].push_back(line.data());
    }
  }
  for (std::vector<char*>& list : words) list.push_back(nullptr);
  mkdir("/tmp", 0755);
  const pid_t child = fork();
  if (child == 0) {
    execve(words[1][0], words[1].data(), words[0].data());
    std::perror(words[1][0]);
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("command ended with %d\n", status);
}

/// With an IOMMU that translates, physical addresses would lead the device astray.
void run_iommu(Checks& checks, const std::string& address) {
  unbind(address);
  checks.run("iommu", [&] {
    expect_error([&] { const nvme::SysfsTransport transport(address); }, "behind an IOMMU");
  });
}

}  // namespace
}  // namespace lsm::guest

int main() {
  using namespace lsm::guest;
  mount_file_systems();
  Checks checks;
  try {
    std::string line;
    std::ifstream command_line("/proc/cmdline");
    std::getline(command_line, line);
    const std::vector<std::string> addresses = lsm::nvme::find_controllers();
    const auto asked = [&](const char* what) { return line.find(what) != std::string::npos; };
    if (asked("guest=iommu")) run_iommu(checks, addresses.at(0));
    if (asked("guest=sysfs")) run_sysfs(checks, addresses.at(0), addresses.at(1), addresses.at(2));
    if (asked("guest=command")) run_command(addresses);
    if (asked("guest=libnvm")) run_libnvm(checks, addresses);
  } catch (const std::exception& error) {
    std::printf("guest failed: %s\n", error.what());
  }
  power_off();
}
