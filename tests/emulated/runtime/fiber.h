// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace emulated {

/// A stack of its own on which a thread runs main(argument), switched to and fro by hand. main()
/// never returns.
class Fiber {
 public:
  static constexpr size_t kStackBytes = 256 << 10;

  Fiber(void (*main)(void*), void* argument);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// From the thread: runs the fiber until it calls leave().
  void enter();
  /// From the fiber: back to the thread.
  void leave();
  uintptr_t stack() const { return reinterpret_cast<uintptr_t>(stack_); }

 private:
  static void begin(Fiber* fiber);

  void (*const main_)(void*);
  void* const argument_;
  std::byte* stack_;
  void* order_;         // the sanitizer's name of the fiber
  void* thread_order_;  // and of the thread
#if defined(__x86_64__)
  void* at_ = nullptr;
  void* thread_at_ = nullptr;
#else
  ucontext_t at_;
  ucontext_t thread_at_;
#endif
};

}  // namespace emulated
