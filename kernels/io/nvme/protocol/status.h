// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace lsm::nvme {

/// What a completion's status says, in words and as numbers: "LBA Out of Range (type 0, code
/// 0x80)".
std::string describe_status(uint16_t status);

}  // namespace lsm::nvme
