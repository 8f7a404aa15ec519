// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/io/nvme/protocol/status.h"

#include <cstdio>

#include "kernels/core/check.h"
#include "kernels/io/nvme/protocol/spec.h"

namespace lsm::nvme {
namespace {

struct StatusName {
  uint16_t status;
  const char* name;
};

// Those that a read, a write, or our set-up, may meet (4.6.1.2).
constexpr StatusName kNames[] = {
    {0x000, "success"},
    {0x001, "invalid command opcode"},
    {0x002, "invalid field in command"},
    {0x003, "command identifier conflict"},
    {0x004, "data transfer error"},
    {0x005, "aborted for loss of power"},
    {0x006, "internal error"},
    {0x007, "aborted on request"},
    {0x008, "aborted because its submission queue was deleted"},
    {0x00b, "invalid namespace or format"},
    {0x00c, "command sequence error"},
    {0x013, "PRP offset invalid"},
    {0x01c, "sanitize failed"},
    {0x01d, "sanitize in progress"},
    {0x020, "namespace is write-protected"},
    {0x080, "LBA out of range"},
    {0x081, "capacity exceeded"},
    {0x082, "namespace not ready"},
    {0x083, "reservation conflict"},
    {0x084, "format in progress"},
    {0x100, "completion queue invalid"},
    {0x101, "invalid queue identifier"},
    {0x102, "invalid queue size"},
    {0x10c, "invalid queue deletion"},
    {0x182, "write to a read-only range"},
    {0x280, "write fault"},
    {0x281, "unrecovered read error"},
    {0x282, "end-to-end guard check error"},
    {0x283, "end-to-end application tag check error"},
    {0x284, "end-to-end reference tag check error"},
    {0x286, "access denied"},
    {0x287, "deallocated or unwritten block"},
};

const char* name_of(uint16_t code) {
  for (const StatusName& known : kNames) {
    if (known.status == code) return known.name;
  }
  return (code >> 8) == 7 ? "vendor-specific status" : "unnamed status";
}

}  // namespace

std::string describe_status(uint16_t status) {
  const uint16_t code = status & kStatusCodeMask;
  char numbers[48];
  std::snprintf(numbers, sizeof(numbers), " (type %u, code 0x%02x%s)", code >> 8, code & 0xffu,
                (status & kStatusDoNotRetry) != 0 ? ", do not retry" : "");
  return std::string(name_of(code)) + numbers;
}

}  // namespace lsm::nvme
