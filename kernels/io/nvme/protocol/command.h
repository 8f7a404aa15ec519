// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"
#include "kernels/io/nvme/protocol/prp.h"
#include "kernels/io/nvme/protocol/spec.h"

namespace lsm::nvme {

/// The blocks of a command.
struct BlockRange {
  uint32_t namespace_id;
  uint32_t num_blocks;  // 1 to 65,536
  uint64_t lba;
};

/// The entry of a read or write, with every dword defined.
LSM_HOST_DEVICE inline Command make_transfer(uint32_t opcode, uint16_t id, const BlockRange& blocks,
                                             const DataPointer& data) {
  Command command;
  uint32_t* dwords = command.dwords;
  dwords[0] = opcode | static_cast<uint32_t>(id) << 16;  // not fused; PSDT 0: PRPs
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

/// A read command. Queues of feature storage take only this type, and make() is its only
/// constructor, so that code cannot change stored data.
class ReadCommand {
 public:
  /// `id`: the identifier in the completion. No other command in flight on the queue may have it.
  LSM_HOST_DEVICE static ReadCommand make(uint16_t id, const BlockRange& blocks,
                                          const DataPointer& data) {
    return ReadCommand(make_transfer(kOpcodeRead, id, blocks, data));
  }

  LSM_HOST_DEVICE const Command& wire() const { return wire_; }

 private:
  LSM_HOST_DEVICE explicit ReadCommand(const Command& wire) : wire_(wire) {}
  Command wire_;
};

/// A command of an engine that writes, too.
class TransferCommand {
 public:
  /// `id`: as of ReadCommand.
  static TransferCommand make(bool writes, uint16_t id, const BlockRange& blocks,
                              const DataPointer& data) {
    return TransferCommand(make_transfer(writes ? kOpcodeWrite : kOpcodeRead, id, blocks, data));
  }
  /// Completes when everything written to the namespace before is on the medium.
  static TransferCommand flush(uint16_t id, uint32_t namespace_id) {
    Command command{};
    command.dwords[0] = kOpcodeFlush | static_cast<uint32_t>(id) << 16;
    command.dwords[1] = namespace_id;
    return TransferCommand(command);
  }

  const Command& wire() const { return wire_; }

 private:
  explicit TransferCommand(const Command& wire) : wire_(wire) {}
  Command wire_;
};

}  // namespace lsm::nvme
