//===- Fiber.cpp - stacks, and switching between them ---------------------===//

#include "lib/Emulator/Emulator.h"

#include <cstring>
#include <sys/mman.h>

namespace trainkernel::emulator {

// Saves the registers that a function must keep; everything else is the caller's to save.
asm(R"(
  .text
  .globl tk_emu_switch
  .hidden tk_emu_switch
  .type tk_emu_switch, @function
tk_emu_switch:
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
  .size tk_emu_switch, .-tk_emu_switch
)");

static constexpr uint64_t canary = 0x7ACE0FF7ACE0FF7;

void *prepareStack(char *low, uint64_t bytes, void (*start)()) {
  std::memcpy(low, &canary, sizeof canary);
  auto *top = reinterpret_cast<uint64_t *>(low + bytes);
  // As after a call: 8 bytes beyond a multiple of 16. The caller's address ends a backtrace.
  *--top = 0;
  *--top = reinterpret_cast<uint64_t>(start);
  for (int registers = 0; registers < 6; ++registers)
    *--top = 0;
  return top;
}

bool hasOverflowed(const char *low) { return std::memcmp(low, &canary, sizeof canary) != 0; }

char *stackMemory(uint64_t count) {
  static char *memory = nullptr;
  static uint64_t size = 0;
  if (count * stackBytes <= size)
    return memory;
  if (memory)
    munmap(memory, size);
  size = count * stackBytes;
  void *made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  memory = made == MAP_FAILED ? nullptr : static_cast<char *>(made);
  size = memory ? size : 0;
  return memory;
}

} // namespace trainkernel::emulator
