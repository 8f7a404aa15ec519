// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Definitions of NVM Express 1.4 that we use: registers, queue entries, opcodes, status codes.
// Section numbers are those of the base specification, revision 1.4.
#pragma once

#include <cstdint>

#include "kernels/core/macros.h"

namespace lsm::nvme {

/// The memory page of the controller that we set (CC.MPS = 0), and so the unit of PRP entries.
inline constexpr uint32_t kPageBytes = 4096;

/// Offsets of the controller's registers in BAR0, in bytes (3.1).
enum Register : uint32_t {
  kCapabilities = 0x00,  // 64 bits
  kVersion = 0x08,
  kConfiguration = 0x14,
  kStatusRegister = 0x1c,
  kAdminQueueAttributes = 0x24,
  kAdminSubmissionBase = 0x28,  // 64 bits
  kAdminCompletionBase = 0x30,  // 64 bits
  kDoorbells = 0x1000,
};

/// Fields of the configuration register, CC (3.1.5).
inline constexpr uint32_t kConfigurationEnable = 1u << 0;
inline constexpr uint32_t kConfigurationShutdownMask = 3u << 14;
inline constexpr uint32_t kConfigurationShutdownNormal = 1u << 14;
inline constexpr uint32_t kConfigurationEntrySizes = (6u << 16) | (4u << 20);  // 64 and 16 bytes

/// Fields of the status register, CSTS (3.1.6).
inline constexpr uint32_t kStatusReady = 1u << 0;
inline constexpr uint32_t kStatusFatal = 1u << 1;
inline constexpr uint32_t kStatusShutdownMask = 3u << 2;
inline constexpr uint32_t kStatusShutdownDone = 2u << 2;

/// The capabilities register, CAP (3.1.1).
struct Capabilities {
  uint64_t raw = 0;

  uint32_t max_queue_entries() const { return static_cast<uint32_t>(raw & 0xffff) + 1; }
  /// Longest time of a change of CC.EN, in seconds.
  double timeout_secs() const { return static_cast<double>(raw >> 24 & 0xff) * 0.5; }
  uint32_t doorbell_stride_bytes() const { return 4u << (raw >> 32 & 0xf); }
  bool nvm_command_set() const { return (raw >> 37 & 1) != 0; }
  uint64_t min_page_bytes() const { return uint64_t{4096} << (raw >> 48 & 0xf); }
};

/// Offset in BAR0 of a queue's doorbell: submission tail, or completion head (3.1.16, 3.1.17).
inline uint32_t tail_doorbell_offset(uint32_t queue, uint32_t stride_bytes) {
  return kDoorbells + 2 * queue * stride_bytes;
}
inline uint32_t head_doorbell_offset(uint32_t queue, uint32_t stride_bytes) {
  return kDoorbells + (2 * queue + 1) * stride_bytes;
}

/// An entry of a submission queue (4.2).
struct alignas(64) Command {
  uint32_t dwords[16];
};
static_assert(sizeof(Command) == 64);

/// An entry of a completion queue (4.6). The controller writes dword 3, which holds the phase,
/// last.
struct alignas(16) Completion {
  uint32_t dwords[4];

  LSM_HOST_DEVICE uint16_t submission_head() const {
    return static_cast<uint16_t>(dwords[2] & 0xffff);
  }
  LSM_HOST_DEVICE uint16_t submission_queue() const {
    return static_cast<uint16_t>(dwords[2] >> 16);
  }
  LSM_HOST_DEVICE uint16_t command_id() const { return static_cast<uint16_t>(dwords[3] & 0xffff); }
  LSM_HOST_DEVICE uint32_t phase() const { return dwords[3] >> 16 & 1; }
  /// Status field without the phase: 0 is success (4.6.1).
  LSM_HOST_DEVICE uint16_t status() const { return static_cast<uint16_t>(dwords[3] >> 17); }
};
static_assert(sizeof(Completion) == 16);

/// The I/O commands that we build (NVM command set: 6.8, 6.15, 6.9).
inline constexpr uint32_t kOpcodeFlush = 0x00;
inline constexpr uint32_t kOpcodeWrite = 0x01;
inline constexpr uint32_t kOpcodeRead = 0x02;

/// Status values: type in bits 10:8, code in bits 7:0 (4.6.1.2); above them only hints.
inline constexpr uint16_t kStatusCodeMask = 0x7ff;
inline constexpr uint16_t kStatusDoNotRetry = 1u << 14;
enum Status : uint16_t {
  kSuccess = 0x000,
  kInvalidOpcode = 0x001,
  kInvalidField = 0x002,
  kCommandIdConflict = 0x003,
  kDataTransferError = 0x004,
  kInternalError = 0x006,
  kAbortedSubmissionQueueDeletion = 0x008,
  kInvalidNamespace = 0x00b,
  kPrpOffsetInvalid = 0x013,
  kNamespaceWriteProtected = 0x020,
  kLbaOutOfRange = 0x080,
  kCompletionQueueInvalid = 0x100,
  kInvalidQueueId = 0x101,
  kInvalidQueueSize = 0x102,
  kInvalidQueueDeletion = 0x10c,
  kWriteFault = 0x280,
  kUnrecoveredReadError = 0x281,
};

}  // namespace lsm::nvme
