// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"
#include "kernels/io/nvme/protocol/prp.h"
#include "kernels/io/nvme/protocol/spec.h"

namespace lsm::nvme {

/// The blocks that a command reads.
struct BlockRange {
  uint32_t namespace_id;
  uint32_t num_blocks;  // 1 to 65,536
  uint64_t lba;
};

/// A read command with every dword defined. I/O queues take only this type, and make() is its only
/// constructor, so the queue code cannot change stored data.
class ReadCommand {
 public:
  /// `id`: the identifier in the completion. No other command in flight on the queue may have it.
  LSM_HOST_DEVICE static ReadCommand make(uint16_t id, const BlockRange& blocks,
                                          const DataPointer& data) {
    ReadCommand command;
    uint32_t* dwords = command.wire_.dwords;
    dwords[0] = kOpcodeRead | static_cast<uint32_t>(id) << 16;  // not fused; PSDT 0: PRPs
    dwords[1] = blocks.namespace_id;
    dwords[2] = dwords[3] = 0;  // reserved
    dwords[4] = dwords[5] = 0;  // no separate metadata
    dwords[6] = static_cast<uint32_t>(data.prp1);
    dwords[7] = static_cast<uint32_t>(data.prp1 >> 32);
    dwords[8] = static_cast<uint32_t>(data.prp2);
    dwords[9] = static_cast<uint32_t>(data.prp2 >> 32);
    dwords[10] = static_cast<uint32_t>(blocks.lba);
    dwords[11] = static_cast<uint32_t>(blocks.lba >> 32);
    dwords[12] = (blocks.num_blocks - 1) & 0xffff;  // PRINFO 0, no FUA, no limited retry
    dwords[13] = 0;                                 // no hints on the access pattern
    dwords[14] = dwords[15] = 0;                    // no end-to-end protection
    return command;
  }

  LSM_HOST_DEVICE const Command& wire() const { return wire_; }

 private:
  ReadCommand() = default;
  Command wire_;
};

}  // namespace lsm::nvme
