// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace lsm::nvme {

/// A completion's status in words and numbers: "LBA Out of Range (type 0, code 0x80)".
std::string describe_status(uint16_t status);

}  // namespace lsm::nvme
