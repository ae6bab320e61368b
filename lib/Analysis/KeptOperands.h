//===- KeptOperands.h - operands that stay in shared memory -----*- C++ -*-===//
//
// A contraction's operand that does not depend on the tile, such as the weights of a recurrent cell where a tile has
// whole rows, is the same for one tile op after the other. Here is told when it is the same.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_KEPTOPERANDS_H
#define TRAINKERNEL_LIB_ANALYSIS_KEPTOPERANDS_H

#include "lib/Analysis/TileGeometry.h"

namespace mlir::megakernel {

/// What a tile op stages of the operand that its rows are multiplied with.
struct OperandContent {
  /// Each element as an expression of inputs, and how the elements lie. Equal texts are equal bytes.
  std::string text;
  /// The arguments of the kernel that it is computed from.
  llvm::SetVector<Value> sources;
  /// The CTAs that stage it.
  int64_t firstCta, tiles;
  int64_t bytes;

  bool isSame(const OperandContent &other) const {
    return text == other.text && firstCta == other.firstCta && tiles == other.tiles;
  }
};

/// The element of `operand` at d0 along one loop and d1 along the other, as an expression of arguments of the step or
/// kernel, or nothing where it has a form that this does not follow. `inputs` are what the region's arguments stand
/// for.
std::optional<std::string> textOfOperand(linalg::GenericOp op, OpOperand *operand, unsigned outerLoop,
                                         unsigned innerLoop, ValueRange inputs, llvm::SetVector<Value> &sources);

/// The content of a contraction's operand over n and k, or nothing where it differs from tile to tile, is computed from
/// what the kernel writes, or has a form that this does not follow.
std::optional<OperandContent> contentToKeep(KernelOp kernel, TileOp tile);

/// For each phase, how many bytes from the start of shared memory hold kept operands while it runs.
SmallVector<int64_t> keptBytesOf(KernelOp kernel);

/// True where `tile` may write the memory of an argument of the kernel.
bool mayWrite(KernelOp kernel, TileOp tile, Value argument);

} // namespace mlir::megakernel

#endif
