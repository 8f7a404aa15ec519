// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
// Races of the warps of a launch, whatever their order was. The thread sanitizer takes warps that
// follow each other in the same fibers for one thread, and finds no race of theirs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/emulated/runtime/memory.h"

namespace emulated {

enum class Touch : uint8_t { kRead = 1, kAtomic = 2, kWrite = 4 };

/// Ends the process if another warp of the launch wrote some of these bytes, or this one writes
/// what the other has read; unless both are atomic operations.
void check_warps(const OwnMemory& own, uintptr_t address, size_t bytes, Touch touch);
/// Forgets what was touched there.
void forget_touches(void* memory, size_t bytes);

}  // namespace emulated
