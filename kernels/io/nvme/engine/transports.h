// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/io/nvme/emulated/options.h"
#include "kernels/io/nvme/transport/transport.h"
#include "kernels/io/row_layout.h"

namespace lsm::nvme {

/// Emulated controllers over a store's files.
struct EmulationOptions {
  uint32_t block_bytes = 512;    // of the namespaces: 512 or 4096
  uint32_t num_controllers = 1;  // over which the store's files are dealt round robin
  uint64_t most_bytes = 0;       // of a namespace; 0: as many as its file has
  bool writable = false;
  int gpu = -1;  // to whose memory they write as well; -1: host memory only
  ControllerOptions controller = {};
};

/// Options of the access to a store's namespaces.
struct TransportOptions {
  std::string transport = "emulated";
  EmulationOptions emulated = {};
};

/// A namespace, by the transport's place in OpenTransports and the identifier there.
struct NamespaceAddress {
  size_t transport = 0;
  uint32_t namespace_id = 1;
};

struct OpenTransports {
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<NamespaceAddress> namespaces;  // one per path, in their order
};

/// Opens the controllers of all `paths`, one per part that the rows of `layout` are striped over. A
/// path is, for emulated, the file with the namespace's blocks; for sysfs and libnvm, the name of a
/// namespace (namespaces.h). Throws ArgumentError, with the choices, for a transport that does not
/// exist.
OpenTransports open_transports(const TransportOptions& options,
                               const std::vector<std::string>& paths, const RowLayout& layout);

}  // namespace lsm::nvme
