//===- TileChoice.cpp - fused regions as the planner sees them ------------===//

#include "lib/Analysis/TileChoice.h"

#include "lib/Analysis/KeptOperands.h"
#include "lib/Analysis/Sources.h"
#include "lib/Analysis/TileFootprint.h"
#include "lib/Analysis/TileGeometry.h"
#include "lib/Analysis/Views.h"
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

// Instructions for one element, roughly: division and functions take a dozen or two.
static int64_t bodyWork(linalg::GenericOp op) {
  int64_t work = 0;
  for (Operation &inner : op.getRegion().front().without_terminator())
    work += isa<math::MathDialect>(inner.getDialect()) || isa<arith::DivFOp>(inner) ? 16 : 1;
  return work;
}

// Of all ops of a region that is no contraction.
static int64_t workOf(Region &body) {
  int64_t work = 0;
  body.walk([&](linalg::GenericOp op) {
    int64_t elements = 1;
    for (int64_t extent : op.getStaticLoopRanges())
      elements *= extent;
    work += elements * bodyWork(op);
  });
  return work;
}

int64_t mlir::megakernel::epilogueWork(FusedRegion &region) {
  int64_t work = 1, results = 1;
  for (int64_t extent : region.parallelShape)
    results *= extent;
  region.reduction->getBlock()->walk([&](linalg::GenericOp op) {
    // What is much smaller than the result is the bias or a scalar; what is larger belongs to an operand.
    if (isReduction(op) || cast<RankedTensorType>(op.getResult(0).getType()).getNumElements() != results)
      return;
    work += bodyWork(op);
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
  ContractionShape shape;
  shape.batch = extent(loops.batch) * outer(loops.m) * outer(loops.n);
  shape.m = ranges[loops.m.back()];
  shape.n = ranges[loops.n.back()];
  shape.k = extent(loops.k);
  auto [a, b] = operandsOf(region.reduction, loops.m.back());
  Sources aSources = sourcesOf(a->get()), bSources = sourcesOf(b->get());
  shape.aBytes = bytesPerElement(aSources);
  shape.bBytes = bytesPerElement(bSources);
  shape.resultBytes = epilogueBytes(region);
  shape.resultWork = epilogueWork(region);
  shape.multiplier = multiplierOf(region.reduction);
  return shape;
}

static bool reducesInnermost(FusedRegion &region) {
  if (region.reduction.getNumDpsInputs() == 0)
    return true;
  return llvm::is_contained(region.reductionLoops,
                            contiguousLoop(region.reduction, region.reduction.getDpsInputOperand(0)));
}

// n is the last dimension of the results, and the only one of its kind; m stands before it.
static bool hasRowsFirst(FusedRegion &region) {
  ContractionLoops loops(region);
  size_t rank = region.parallelLoops.size();
  return rank > 1 && loops.n.size() == 1 && region.parallelLoops[rank - 1] == loops.n.back() &&
         region.parallelLoops[rank - 2] == loops.m.back();
}

OpModel mlir::megakernel::modelOf(Region &body) {
  FusedRegion region = FusedRegion::get(body);
  OpModel model;
  model.shape.assign(region.parallelShape.begin(), region.parallelShape.end());
  model.bytes = bytesOf(body.getArgumentTypes()) + bytesOf(body.front().getTerminator()->getOperandTypes());
  if (!region.reduction) {
    model.work = workOf(body);
    return model;
  }
  if (region.isContraction()) {
    model.kind = OpModel::Contraction;
    model.contraction = contractionShape(region);
    model.rowsLead = hasRowsFirst(region);
    return model;
  }
  model.kind = OpModel::Reduction;
  model.work = workOf(body);
  for (int64_t extent : region.reductionShape)
    model.reduced *= extent;
  model.reducesContiguous = reducesInnermost(region);
  return model;
}

// True where row `row` of `count` rows of `after` reads no other row of `before`. A row is a box of the dimensions that
// are counted, since what is asked for is a product of leading extents.
static bool readsOwnRow(FusedOp before, FusedOp after, int64_t row, int64_t count) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(after.getResult(0).getType()).getShape();
  ArrayRef<int64_t> source = cast<RankedTensorType>(before.getResult(0).getType()).getShape();
  auto inRows = [&](ArrayRef<int64_t> extents) {
    return SmallVector<int64_t>{count, ShapedType::getNumElements(extents) / count};
  };
  Box box = reshapeBox({{row, row}, {0, inRows(shape)[1] - 1}}, inRows(shape), shape);
  SmallVector<SmallVector<Box>> read = boxesRead(after.getBody(), box);
  for (auto [input, boxes] : llvm::zip(after.getInputs(), read)) {
    if (skipReshapes(input).getDefiningOp() != before)
      continue;
    for (const Box &part : boxes) {
      Box sourceBox = reshapeBox(part, cast<RankedTensorType>(input.getType()).getShape(), source);
      Interval rows = reshapeBox(sourceBox, source, inRows(source)).front();
      if (rows.first != row || rows.last != row)
        return false;
    }
  }
  return true;
}

// A few rows tell; what is planned with them is proved once tiles are placed.
llvm::SmallVector<int64_t, 2> mlir::megakernel::sharedRowsOf(FusedOp before, FusedOp after) {
  SmallVector<int64_t> counts = rowCountsOf(cast<RankedTensorType>(before.getResult(0).getType()).getShape());
  llvm::SmallVector<int64_t, 2> shared;
  for (int64_t count : rowCountsOf(cast<RankedTensorType>(after.getResult(0).getType()).getShape()))
    if (llvm::is_contained(counts, count) && llvm::all_of(ArrayRef<int64_t>{count / 2, count - 1, 0}, [&](int64_t row) {
          return readsOwnRow(before, after, row, count);
        }))
      shared.push_back(count);
  return shared;
}

std::optional<std::string> mlir::megakernel::sharedOperandOf(FusedOp op) {
  FusedRegion region = FusedRegion::get(op.getBody());
  if (!region.reduction || !region.isContraction())
    return std::nullopt;
  ContractionLoops loops(region);
  unsigned n = loops.n.back(), k = loops.k.back();
  OpOperand *operand = operandsOf(region.reduction, loops.m.back()).second;
  bool kInner = contiguousLoop(region.reduction, operand) == k;
  llvm::SetVector<Value> sources;
  return textOfOperand(region.reduction, operand, kInner ? n : k, kInner ? k : n, op.getInputs(), sources);
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
