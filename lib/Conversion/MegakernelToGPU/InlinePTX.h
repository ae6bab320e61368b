//===- InlinePTX.h - what is written as PTX text ----------------*- C++ -*-===//
//
// Each text in one place: the emulator knows them, and names one that it does not.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_INLINEPTX_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_INLINEPTX_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/StringRef.h"

#include <string>

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

/// Whatever was done to accumulators comes before the products of a warpgroup that follow; and they are complete.
inline constexpr llvm::StringLiteral warpgroupFence = "wgmma.fence.sync.aligned;";
inline constexpr llvm::StringLiteral warpgroupCommit = "wgmma.commit_group.sync.aligned;";
inline constexpr llvm::StringLiteral warpgroupWait = "wgmma.wait_group.sync.aligned 0;";

/// Adds a product of 64 x `columns` x 16 to accumulators, the first operands. Two matrix descriptors follow. Operands
/// are contiguous along k, or `isAAcross` and `isBAcross` along m and n.
struct WarpgroupProduct {
  int64_t columns;
  bool isBF16, isAAcross, isBAcross;

  /// Accumulators of a thread.
  int64_t registers() const { return columns / 2; }
  std::string text() const;
};

inline std::string WarpgroupProduct::text() const {
  std::string type = isBF16 ? "bf16" : "f16", all;
  for (int64_t i = 0; i < registers(); ++i)
    all += (i ? ", $" : "$") + std::to_string(i);
  // Outputs, and the inputs that are in their places, come first.
  std::string a = "$" + std::to_string(2 * registers()), b = "$" + std::to_string(2 * registers() + 1);
  return "{\n.reg .pred adds;\nsetp.eq.u32 adds, 0, 0;\nwgmma.mma_async.sync.aligned.m64n" + std::to_string(columns) +
         "k16.f32." + type + "." + type + " {" + all + "}, " + a + ", " + b + ", adds, 1, 1, " +
         (isAAcross ? "1, " : "0, ") + (isBAcross ? "1" : "0") + ";\n}";
}

/// The constraints of a text that changes `registers` of float32, its first operands; `others` are as they say.
inline std::string changing(int64_t registers, llvm::StringRef others) {
  std::string outputs, inputs;
  for (int64_t i = 0; i < registers; ++i) {
    outputs += (i ? ",=f" : "=f");
    inputs += "," + std::to_string(i);
  }
  return outputs + inputs + "," + others.str();
}

/// `has_side_effects`: each of these texts has its place in the order of things.
inline LLVM::InlineAsmOp emit(OpBuilder &builder, Location loc, TypeRange results, ValueRange operands,
                              llvm::StringRef text, llvm::StringRef constraints) {
  return LLVM::InlineAsmOp::create(builder, loc, results, operands, text, constraints, /*has_side_effects=*/true,
                                   /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
                                   LLVM::AsmDialectAttr::get(builder.getContext(), LLVM::AsmDialect::AD_ATT),
                                   /*operand_attrs=*/ArrayAttr());
}

} // namespace mlir::megakernel::ptx

#endif
