// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Opens real controllers by the names of their namespaces: DRIVE, or DRIVE@ID for a namespace
// other than 1. DRIVE is a PCI address (sysfs), or a device node (libnvm).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/io/nvme/engine/transports.h"

namespace lsm::nvme {

struct NamespaceName {
  std::string drive;
  uint32_t id = 1;
};

/// Throws ArgumentError unless a namespace identifier follows the @.
NamespaceName parse_namespace_name(const std::string& name);

/// Opens each controller once, also for several of its namespaces. Throws the errors of the
/// transports, and ArgumentError for a repeated namespace.
OpenTransports open_sysfs(const std::vector<std::string>& names);
OpenTransports open_libnvm(const std::vector<std::string>& names);

/// The last kPageBytes of a namespace, where `lsm data load-nvme` puts its label.
std::vector<std::byte> read_last_page(const TransportOptions& options, const std::string& name);

}  // namespace lsm::nvme
