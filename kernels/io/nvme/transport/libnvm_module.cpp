// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/transport/libnvm_module.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "kernels/core/check.h"

namespace lsm::nvme {
namespace {

class OpenedNode final : public LibnvmNode {
 public:
  explicit OpenedNode(const std::string& path) : file_(path, O_RDWR) { file_.lock(); }

  std::string path() const override { return file_.path(); }

  std::byte* map_registers(size_t bytes) override {
    try {
      registers_ = FileMapping(file_, bytes);
    } catch (const SystemError& error) {
      if (error.error_number != EINVAL) throw;
      return nullptr;
    }
    return registers_.data();
  }

  int request(unsigned long request, void* argument) override {
    return ioctl(file_.get(), request, argument) == 0 ? 0 : errno;
  }

 private:
  const FileHandle file_;
  FileMapping registers_;
};

}  // namespace

std::unique_ptr<LibnvmNode> open_libnvm_node(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    const bool loaded = std::filesystem::exists("/sys/module/libnvm");
    throw SystemError(
        ENOENT, path,
        loaded ? "no such device node: the kernel module libnvm is loaded, but holds no such "
                 "controller; unbind one from the driver nvme, then load the module again"
               : "no such device node: the kernel module libnvm is not loaded; lsm doctor shows "
                 "how to get it");
  }
  auto node = std::make_unique<OpenedNode>(path);
  // As in gpu_support_problem(). A node with another answer may not even have registers to read.
  const int error = node->request(kLibnvmMapHost, nullptr);
  if (error != EFAULT) {
    throw SystemError(
        ENODEV, path,
        "is no device of the kernel module libnvm: expected a node such as /dev/libnvm0");
  }
  return node;
}

std::string gpu_support_problem(LibnvmNode& node) {
  // A module that knows the request first copies its argument, and cannot: no address is valid.
  const int error = node.request(kLibnvmMapGpu, nullptr);
  if (error == EFAULT) return "";
  if (error == EINVAL) {
    return concat(node.path(),
                  ": the kernel module libnvm was built without GPU support; build it again where "
                  "the headers of the NVIDIA driver (nv-p2p.h) are found");
  }
  return concat(node.path(), ": the kernel module libnvm gave another answer than ",
                std::strerror(EFAULT), ": ", error == 0 ? "success" : std::strerror(error));
}

std::string libnvm_problem(const std::string& path) {
  try {
    return gpu_support_problem(*open_libnvm_node(path));
  } catch (const SystemError& error) {
    return concat(path, ": ", error.what());
  }
}

}  // namespace lsm::nvme
