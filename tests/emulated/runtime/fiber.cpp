// Copyright the LSM-GNN authors. SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/runtime/fiber.h"

#include <sys/mman.h>

#include "tests/emulated/runtime/hooks.h"

#if defined(__x86_64__)
// Saves what a call must keep on this stack, and goes on where the other was left.
extern "C" void emulated_switch(void** left, void* entered);
asm(R"(
.text
.globl emulated_switch
.hidden emulated_switch
.type emulated_switch, @function
emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_switch, .-emulated_switch
.globl emulated_begin
.hidden emulated_begin
.type emulated_begin, @function
emulated_begin:
  movq %rbx, %rdi
  callq *%r12
  ud2
.size emulated_begin, .-emulated_begin
)");
extern "C" void emulated_begin();
#endif

namespace emulated {

Fiber::Fiber(void (*main)(void*), void* argument) : main_(main), argument_(argument) {
  void* const memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) report("no memory for the stack of a lane");
  mprotect(memory, 4096, PROT_NONE);
  stack_ = static_cast<std::byte*>(memory);
  order_ = hook_create_fiber();
  thread_order_ = hook_current_fiber();
#if defined(__x86_64__)
  void** top = reinterpret_cast<void**>(stack_ + kStackBytes) - 2;
  *--top = reinterpret_cast<void*>(&emulated_begin);
  *--top = nullptr;                              // rbp
  *--top = this;                                 // rbx
  *--top = reinterpret_cast<void*>(&begin);      // r12
  for (int i = 0; i < 3; ++i) *--top = nullptr;  // r13 to r15
  at_ = top;
#else
  getcontext(&at_);
  at_.uc_stack.ss_sp = stack_;
  at_.uc_stack.ss_size = kStackBytes;
  makecontext(&at_, reinterpret_cast<void (*)()>(+[](unsigned high, unsigned low) {
    begin(reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low));
  }),
              2, static_cast<unsigned>(reinterpret_cast<uintptr_t>(this) >> 32),
              static_cast<unsigned>(reinterpret_cast<uintptr_t>(this)));
#endif
}

void Fiber::begin(Fiber* fiber) {
  fiber->main_(fiber->argument_);
  report("a fiber came to its end");
}

void Fiber::enter() {
  hook_switch(order_);
#if defined(__x86_64__)
  emulated_switch(&thread_at_, at_);
#else
  swapcontext(&thread_at_, &at_);
#endif
}

void Fiber::leave() {
  hook_switch(thread_order_);
#if defined(__x86_64__)
  emulated_switch(&at_, thread_at_);
#else
  swapcontext(&at_, &thread_at_);
#endif
}

}  // namespace emulated
