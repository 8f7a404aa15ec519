// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/engine/namespaces.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "kernels/core/check.h"
#include "kernels/core/deadline.h"
#include "kernels/io/nvme/controller/controller.h"
#include "kernels/io/nvme/engine/read_buffers.h"
#include "kernels/io/nvme/protocol/status.h"
#include "kernels/io/nvme/queue/completion.h"
#include "kernels/io/nvme/queue/contiguous.h"
#include "kernels/io/nvme/transport/libnvm_transport.h"
#include "kernels/io/nvme/transport/sysfs_transport.h"

namespace lsm::nvme {
namespace {

constexpr double kReadTimeoutSecs = 10.0;

using OpenDrive = std::function<std::unique_ptr<Transport>(const std::string& drive)>;

OpenTransports open_all(const std::vector<std::string>& names, const OpenDrive& open_drive) {
  OpenTransports result;
  std::vector<std::string> drives;
  for (const std::string& name : names) {
    const NamespaceName parsed = parse_namespace_name(name);
    const auto found = std::ranges::find(drives, parsed.drive);
    const NamespaceAddress address{static_cast<size_t>(found - drives.begin()), parsed.id};
    for (const NamespaceAddress& other : result.namespaces) {
      check_argument(other.transport != address.transport || other.namespace_id != parsed.id,
                     "storage.devices: ", name, " is named twice");
    }
    result.namespaces.push_back(address);
    if (found != drives.end()) continue;
    drives.push_back(parsed.drive);
    result.transports.push_back(open_drive(parsed.drive));
  }
  return result;
}

}  // namespace

NamespaceName parse_namespace_name(const std::string& name) {
  const size_t at = name.rfind('@');
  if (at == std::string::npos) return {name, 1};
  NamespaceName parsed{name.substr(0, at), 0};
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + at + 1, end, parsed.id);
  check_argument(error == std::errc() && rest == end && parsed.id > 0,
                 "storage.devices: expected DRIVE or DRIVE@NAMESPACE, got ", name);
  return parsed;
}

OpenTransports open_sysfs(const std::vector<std::string>& names) {
  return open_all(
      names, [](const std::string& address) { return std::make_unique<SysfsTransport>(address); });
}

OpenTransports open_libnvm(const std::vector<std::string>& names) {
  return open_all(names, [](const std::string& node) {
    return std::make_unique<LibnvmTransport>(open_libnvm_node(node));
  });
}

std::vector<std::byte> read_last_page(const TransportOptions& options, const std::string& name) {
  OpenTransports opened = open_transports(options, {name}, {});
  Controller controller(std::move(opened.transports.front()));
  const NamespaceInfo space = controller.identify_namespace(opened.namespaces.front().namespace_id);
  controller.set_num_queues(1);
  const ReadBuffers buffers(controller.transport(), 1, kPageBytes);
  const auto queue = controller.create_queue(1, {2, 2});
  const uint64_t last_page = space.bytes() / kPageBytes - 1;
  const uint32_t num_blocks = kPageBytes / space.block_bytes;
  const BlockRange blocks{space.id, num_blocks, last_page * num_blocks};
  submit_batch(queue->pair(), 1, [&](uint32_t) {
    return ReadCommand::make(0, blocks, buffers.pointer(0, kPageBytes));
  });
  uint16_t status = 0;
  const auto visit = [&](const Completion& entry) { status = entry.status(); };
  const Deadline deadline(kReadTimeoutSecs);
  for (Backoff backoff; take_completions(queue->pair(), 1, visit) == 0; backoff.pause()) {
    if (deadline.passed()) {
      throw TimeoutError(concat(name, ": no answer to the read of its last blocks within ",
                                kReadTimeoutSecs, " s"));
    }
  }
  if (status != 0) {
    throw SystemError(EIO, name, concat("read of its last blocks: ", describe_status(status)));
  }
  return {buffers.data(0), buffers.data(0) + kPageBytes};
}

}  // namespace lsm::nvme
