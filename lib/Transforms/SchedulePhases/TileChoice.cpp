//===- TileChoice.cpp - tile sizes of a fused region ----------------------===//

#include "lib/Transforms/SchedulePhases/TileChoice.h"

#include "lib/Scheduling/TileSizes.h"
#include "mlir/Dialect/Linalg/IR/LinalgInterfaces.h"

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

// Elements per tile of a pointwise op: a CTA's threads take 16 bytes each; a CPU worker takes what fits in L1.
static int64_t pointwiseElements(const TargetFacts &target) {
  return target.kind == TargetKind::Cpu ? 4096 : target.threads * 4;
}

static SmallVector<int64_t> contractionSizes(FusedRegion &parts, const TargetFacts &target) {
  auto linalgOp = cast<linalg::LinalgOp>(parts.reduction.getOperation());
  linalg::ContractionDimensions dims = *linalg::inferContractionDims(linalgOp);
  SmallVector<int64_t> ranges = linalgOp.getStaticLoopRanges();
  auto extent = [&](ArrayRef<unsigned> loops) {
    int64_t product = 1;
    for (unsigned loop : loops)
      product *= ranges[loop];
    return product;
  };
  Type element = cast<RankedTensorType>(parts.reduction.getDpsInputs()[0].getType()).getElementType();
  ContractionShape shape;
  shape.batch = extent(dims.batch);
  shape.m = extent(dims.m);
  shape.n = extent(dims.n);
  shape.k = extent(dims.k);
  shape.elementBytes = element.getIntOrFloatBitWidth() / 8;
  shape.onMatrixUnits = element.getIntOrFloatBitWidth() == 16;
  ContractionTile tile = chooseContractionTile(shape, target);
  // Within each of m, n and k the innermost loop takes the tile; loops further out, and batch loops, take one.
  SmallVector<int64_t> sizes(ranges.size(), 1);
  auto assign = [&](ArrayRef<unsigned> loops, int64_t size) {
    if (!loops.empty())
      sizes[loops.back()] = size;
  };
  assign(dims.m, tile.m);
  assign(dims.n, tile.n);
  assign(dims.k, tile.k);
  SmallVector<int64_t> ordered;
  for (unsigned loop : parts.parallelLoops)
    ordered.push_back(sizes[loop]);
  for (unsigned loop : parts.reductionLoops)
    ordered.push_back(sizes[loop]);
  return ordered;
}

static bool reducesInnermost(FusedRegion &parts) {
  AffineMap map = parts.reduction.getMatchingIndexingMap(parts.reduction.getDpsInputOperand(0));
  if (map.getNumResults() == 0)
    return true;
  unsigned innermost = cast<AffineDimExpr>(map.getResults().back()).getPosition();
  return llvm::is_contained(parts.reductionLoops, innermost);
}

static SmallVector<int64_t> reductionSizes(FusedRegion &parts, const TargetFacts &target) {
  int64_t outputs = 1, reduced = 1;
  for (int64_t extent : parts.parallelShape)
    outputs *= extent;
  for (int64_t extent : parts.reductionShape)
    reduced *= extent;
  int64_t perTile = reductionOutputsPerTile(outputs, reduced, reducesInnermost(parts), target);
  SmallVector<int64_t> sizes = chooseElementTile(parts.parallelShape, perTile);
  llvm::append_range(sizes, parts.reductionShape);
  return sizes;
}

SmallVector<int64_t> mlir::megakernel::chooseTileSizes(FusedRegion &parts, const TargetFacts &target) {
  if (!parts.reduction)
    return chooseElementTile(parts.parallelShape, pointwiseElements(target));
  return parts.isContraction() ? contractionSizes(parts, target) : reductionSizes(parts, target);
}
