//===- TileChoice.cpp - fused regions as the planner sees them ------------===//

#include "lib/Analysis/TileChoice.h"

#include "lib/Analysis/TileGeometry.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

static int64_t bytesOf(TypeRange types) {
  int64_t bytes = 0;
  for (Type type : types) {
    auto tensor = cast<RankedTensorType>(type);
    bytes += tensor.getNumElements() * std::max<int64_t>(1, tensor.getElementTypeBitWidth() / 8);
  }
  return bytes;
}

static int64_t bytesPerElement(Value value) {
  return std::max<int64_t>(1, getElementTypeOrSelf(value.getType()).getIntOrFloatBitWidth() / 8);
}

// The region arguments behind a value that are at least about as large as it.
static void collectSources(Value value, int64_t elements, llvm::SmallSetVector<Value, 4> &sources) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || type.getNumElements() * 2 <= elements)
    return;
  if (Operation *op = value.getDefiningOp())
    for (Value operand : op->getOperands())
      collectSources(operand, elements, sources);
  else
    sources.insert(value);
}

static llvm::SmallSetVector<Value, 4> sourcesOf(Value value) {
  llvm::SmallSetVector<Value, 4> sources;
  collectSources(value, cast<RankedTensorType>(value.getType()).getNumElements(), sources);
  return sources;
}

static int64_t bytesPerElement(const llvm::SmallSetVector<Value, 4> &values) {
  int64_t bytes = 0;
  for (Value value : values)
    bytes += bytesPerElement(value);
  return bytes;
}

// What the epilogue of a contraction reads and writes for each result.
static int64_t epilogueBytes(FusedRegion &region, const llvm::SmallSetVector<Value, 4> &operands) {
  int64_t bytes = 0;
  llvm::SmallSetVector<Value, 4> sources;
  for (Value yielded : region.yielded) {
    bytes += bytesPerElement(yielded);
    sources.insert_range(sourcesOf(yielded));
  }
  sources.remove_if([&](Value value) { return operands.contains(value); });
  return bytes + bytesPerElement(sources);
}

// Instructions per result, roughly: division and functions take a dozen or two.
static int64_t epilogueWork(FusedRegion &region) {
  int64_t work = 1, results = 1;
  for (int64_t extent : region.parallelShape)
    results *= extent;
  region.reduction->getBlock()->walk([&](linalg::GenericOp op) {
    // What is much smaller than the result is the bias or a scalar; what is larger belongs to an operand.
    if (isReduction(op) || cast<RankedTensorType>(op.getResult(0).getType()).getNumElements() != results)
      return;
    for (Operation &inner : op.getRegion().front().without_terminator())
      work += isa<math::MathDialect>(inner.getDialect()) || isa<arith::DivFOp>(inner) ? 16 : 1;
  });
  return work;
}

static ContractionShape contractionShape(FusedRegion &region) {
  ContractionLoops loops(region);
  SmallVector<int64_t> ranges = region.reduction.getStaticLoopRanges();
  auto extent = [&](ArrayRef<unsigned> of) {
    int64_t result = 1;
    for (unsigned loop : of)
      result *= ranges[loop];
    return result;
  };
  // Only the innermost loop of each kind is tiled; the others multiply the number of tiles.
  auto outer = [&](ArrayRef<unsigned> of) { return extent(of.drop_back()); };
  Type element = getElementTypeOrSelf(region.reduction.getDpsInputs()[0].getType());
  ContractionShape shape;
  shape.batch = extent(loops.batch) * outer(loops.m) * outer(loops.n);
  shape.m = ranges[loops.m.back()];
  shape.n = ranges[loops.n.back()];
  shape.k = extent(loops.k);
  auto [a, b] = operandsOf(region.reduction, loops.m.back());
  llvm::SmallSetVector<Value, 4> aSources = sourcesOf(a->get()), bSources = sourcesOf(b->get());
  shape.aBytes = bytesPerElement(aSources);
  shape.bBytes = bytesPerElement(bSources);
  aSources.insert_range(bSources);
  shape.resultBytes = epilogueBytes(region, aSources);
  shape.resultWork = epilogueWork(region);
  shape.onMatrixUnits = element.getIntOrFloatBitWidth() == 16;
  return shape;
}

static bool reducesInnermost(FusedRegion &region) {
  if (region.reduction.getNumDpsInputs() == 0)
    return true;
  return llvm::is_contained(region.reductionLoops,
                            contiguousLoop(region.reduction, region.reduction.getDpsInputOperand(0)));
}

OpModel mlir::megakernel::modelOf(Region &body, unsigned phase) {
  FusedRegion region = FusedRegion::get(body);
  OpModel model;
  model.phase = phase;
  model.shape.assign(region.parallelShape.begin(), region.parallelShape.end());
  model.bytes = bytesOf(body.getArgumentTypes()) + bytesOf(body.front().getTerminator()->getOperandTypes());
  if (!region.reduction)
    return model;
  if (region.isContraction()) {
    model.kind = OpModel::Contraction;
    model.contraction = contractionShape(region);
    return model;
  }
  model.kind = OpModel::Reduction;
  for (int64_t extent : region.reductionShape)
    model.reduced *= extent;
  model.reducesContiguous = reducesInnermost(region);
  return model;
}

static SmallVector<int64_t> contractionSizes(FusedRegion &region, const ContractionTile &tile) {
  ContractionLoops loops(region);
  SmallVector<int64_t> sizes(region.reduction.getNumLoops(), 1);
  sizes[loops.m.back()] = tile.m;
  sizes[loops.n.back()] = tile.n;
  sizes[loops.k.back()] = tile.k;
  SmallVector<int64_t> ordered;
  for (unsigned loop : region.parallelLoops)
    ordered.push_back(sizes[loop]);
  for (unsigned loop : region.reductionLoops)
    ordered.push_back(sizes[loop]);
  return ordered;
}

SmallVector<int64_t> mlir::megakernel::tileSizesOf(Region &body, const OpPlan &plan) {
  FusedRegion region = FusedRegion::get(body);
  if (region.isContraction())
    return contractionSizes(region, plan.tile);
  SmallVector<int64_t> sizes(plan.sizes.begin(), plan.sizes.end());
  llvm::append_range(sizes, region.reductionShape);
  return sizes;
}

OpPlan mlir::megakernel::planOf(Region &body, const OpModel &model, ArrayRef<int64_t> sizes) {
  FusedRegion region = FusedRegion::get(body);
  OpPlan plan;
  if (!region.isContraction()) {
    plan.sizes.assign(sizes.begin(), sizes.begin() + region.parallelShape.size());
    plan.tiles = countTiles(model.shape, plan.sizes);
    return plan;
  }
  ContractionLoops loops(region);
  auto sizeOf = [&](unsigned loop) {
    for (auto [other, size] : llvm::zip(region.parallelLoops, sizes))
      if (other == loop)
        return size;
    for (auto [other, size] : llvm::zip(region.reductionLoops, sizes.drop_front(region.parallelLoops.size())))
      if (other == loop)
        return size;
    return int64_t(1);
  };
  plan.tile = {sizeOf(loops.m.back()), sizeOf(loops.n.back()), sizeOf(loops.k.back())};
  plan.tiles = countTiles(model.contraction, plan.tile);
  return plan;
}
