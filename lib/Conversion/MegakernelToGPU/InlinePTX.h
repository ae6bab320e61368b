//===- InlinePTX.h - what is written as PTX text ----------------*- C++ -*-===//
//
// Each text in one place: the emulator knows them, and names one that it does not.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_INLINEPTX_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_INLINEPTX_H

#include "llvm/ADT/StringRef.h"

namespace mlir::megakernel::ptx {

/// Adds $2 to the counter at $1; $0 is what it was before. A release.
inline constexpr llvm::StringLiteral gridArrive = "atom.add.release.gpu.global.u32 $0, [$1], $2;";
/// Waits until the sign of the counter at $0 differs from that of $1. An acquire.
inline constexpr llvm::StringLiteral gridWait = R"({
  .reg .pred waiting;
  .reg .b32 now;
GRID_WAIT_${:uid}:
  ld.acquire.gpu.global.u32 now, [$0];
  xor.b32 now, now, $1;
  setp.ge.s32 waiting, now, 0;
  @waiting bra GRID_WAIT_${:uid};
})";
/// Hides from the compiler that $0 is $1.
inline constexpr llvm::StringLiteral move = "mov.b32 $0, $1;";
/// Waits for the launches before this one.
inline constexpr llvm::StringLiteral launchesWait = "griddepcontrol.wait;";
/// Lets the next launch start.
inline constexpr llvm::StringLiteral launchNext = "griddepcontrol.launch_dependents;";
/// Waits for the thread's own asynchronous copies.
inline constexpr llvm::StringLiteral copiesWait = "cp.async.wait_all;";

} // namespace mlir::megakernel::ptx

#endif
