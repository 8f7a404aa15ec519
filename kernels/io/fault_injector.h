// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "kernels/core/check.h"

namespace lsm {

enum class Fault : int { kNone, kError, kShort, kStall };

/// Injects a fault into one read of an engine, for tests. Reads are counted in the order of
/// completion.
class FaultInjector {
 public:
  /// The `nth` read from now (0: the next) fails with errno `value` (kError), returns only `value`
  /// bytes (kShort), or never completes (kStall).
  void arm(Fault fault, int64_t nth, int64_t value) {
    check_argument(nth >= 0, "nth: expected at least 0, got ", nth);
    value_.store(value);
    countdown_.store(nth);
    fault_.store(fault);
  }

  /// The result that replaces a read's `result` (bytes, or -errno). Sets `stalled` if the
  /// completion must be dropped.
  int64_t apply(int64_t result, bool* stalled) {
    *stalled = false;
    if (fault_.load(std::memory_order_relaxed) == Fault::kNone) return result;
    if (countdown_.fetch_sub(1) != 0) return result;
    switch (fault_.exchange(Fault::kNone)) {
      case Fault::kError:
        return -value_.load();
      case Fault::kShort:
        return std::min(result, value_.load());
      case Fault::kStall:
        *stalled = true;
        return result;
      case Fault::kNone:
        break;
    }
    return result;
  }

 private:
  std::atomic<Fault> fault_{Fault::kNone};
  std::atomic<int64_t> countdown_{0};
  std::atomic<int64_t> value_{0};
};

}  // namespace lsm
