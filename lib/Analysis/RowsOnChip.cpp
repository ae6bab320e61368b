//===- RowsOnChip.cpp - rows that a CTA has as they are multiplied --------===//

#include "lib/Analysis/RowsOnChip.h"

#include "lib/Analysis/Chains.h"
#include "lib/Analysis/OnChip.h"

using namespace mlir;
using namespace mlir::megakernel;

std::optional<int64_t> mlir::megakernel::findRowsOnChip(KernelOp kernel, TileOp tile) {
  int64_t grid = kernel.getGrid();
  TileGeometry geometry(tile);
  ContractionPlan plan(geometry, kernel.getThreads());
  auto argument = dyn_cast<BlockArgument>(plan.aOperand->get());
  std::optional<TileCtas> ctas = ctasOf(geometry, grid);
  if (!argument || !ctas || plan.numChunks > 1)
    return std::nullopt;
  Value input = tile.getInputs()[argument.getArgNumber()];
  auto buffer = input.getDefiningOp<BufferOp>();
  if (!buffer || !buffer.isOnChip())
    return std::nullopt;
  // Indices of the operand are those of the product: (m, k), all of k.
  SmallVector<AffineExpr> rows{getAffineDimExpr(plan.mLoop, plan.op.getContext()),
                               getAffineDimExpr(plan.kLoop, plan.op.getContext())};
  ArrayRef<AffineExpr> results = plan.op.getMatchingIndexingMap(plan.aOperand).getResults();
  int64_t depth = plan.extentOf(plan.kLoop), bytes = depth * plan.a.element.getIntOrFloatBitWidth() / 8;
  if (!llvm::equal(results, rows) || depth != plan.sizeOf(plan.kLoop) || bytes % 16 != 0)
    return std::nullopt;
  trainkernel::Parts parts = partsOf(buffer);
  bool isOwn = parts.elements == plan.rows * depth && (parts.count == 1 || parts.firstCta % grid == ctas->firstCta) &&
               parts.count == ctas->count;
  return isOwn ? std::optional<int64_t>(*buffer.getSharedAt()) : std::nullopt;
}
