//===- TileFootprint.cpp - which elements a tile touches ------------------===//

#include "lib/Analysis/TileFootprint.h"

#include "lib/Analysis/TileGeometry.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::megakernel;
using trainkernel::Box;
using trainkernel::Footprint;
using trainkernel::Interval;
using trainkernel::Placement;
using trainkernel::SyncScope;

static ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }

static Box wholeOf(Value tensor) {
  Box whole;
  for (int64_t extent : shapeOf(tensor))
    whole.push_back({0, extent - 1});
  return whole;
}

// The values of `expr` over a box of loops, or nothing where they cannot be bounded.
static std::optional<Interval> evaluate(AffineExpr expr, const Box &loops) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return loops[dim.getPosition()];
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return Interval{constant.getValue(), constant.getValue()};
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return std::nullopt;
  std::optional<Interval> lhs = evaluate(binary.getLHS(), loops), rhs = evaluate(binary.getRHS(), loops);
  if (!lhs || !rhs)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Add)
    return Interval{lhs->first + rhs->first, lhs->last + rhs->last};
  if (rhs->first != rhs->last || (expr.getKind() != AffineExprKind::Mul && rhs->first <= 0))
    return std::nullopt;
  int64_t factor = rhs->first;
  switch (expr.getKind()) {
  case AffineExprKind::Mul:
    return Interval{std::min(lhs->first * factor, lhs->last * factor),
                    std::max(lhs->first * factor, lhs->last * factor)};
  case AffineExprKind::FloorDiv:
    return Interval{llvm::divideFloorSigned(lhs->first, factor), llvm::divideFloorSigned(lhs->last, factor)};
  case AffineExprKind::Mod:
    if (llvm::divideFloorSigned(lhs->first, factor) == llvm::divideFloorSigned(lhs->last, factor))
      return Interval{llvm::mod(lhs->first, factor), llvm::mod(lhs->last, factor)};
    return Interval{0, factor - 1};
  default:
    return std::nullopt;
  }
}

namespace {
/// Walks one region from any number of boxes.
class BoxWalker {
public:
  explicit BoxWalker(Region &region) : region(region) {}

  /// Of each region argument, the boxes that the results in `box` are computed from.
  SmallVector<SmallVector<Box>> walk(const Box &box);

private:
  void visit(Value tensor, const Box &box);
  void visitGeneric(linalg::GenericOp op, OpResult result, const Box &box);
  void visitInsertSlice(tensor::InsertSliceOp op, const Box &box);
  void visitExtractSlice(tensor::ExtractSliceOp op, const Box &box);
  const Box &loopsOf(linalg::GenericOp op);

  Region &region;
  /// Of each value, the boxes that this walk has come by. A box within another one leads to nothing new, and a value
  /// with several uses is on many ways.
  DenseMap<Value, SmallVector<Box, 1>> seen;
  /// The loops of each op, which MLIR would infer from its operands at each question.
  DenseMap<Operation *, Box> loops;
};

/// What the tiles of an op read, by tile: several accesses of several steps ask for the same.
class TileReads {
public:
  explicit TileReads(TileOp tile) : walker(tile.getBody()) {
    TileGeometry geometry(tile);
    shape.assign(geometry.shape().begin(), geometry.shape().end());
    sizes.assign(geometry.sizes.begin(), geometry.sizes.end());
  }

  ArrayRef<Box> of(int64_t number, unsigned index) {
    auto [known, isNew] = reads.try_emplace(number);
    if (isNew)
      known->second = walker.walk(trainkernel::boxOfTile(shape, sizes, number));
    return known->second[index];
  }

private:
  BoxWalker walker;
  SmallVector<int64_t> shape, sizes;
  DenseMap<int64_t, SmallVector<SmallVector<Box>>> reads;
};
} // namespace

static bool holds(const Box &outer, const Box &inner) {
  return llvm::all_of(llvm::zip(outer, inner), [](auto pair) {
    auto [a, b] = pair;
    return a.first <= b.first && b.last <= a.last;
  });
}

SmallVector<SmallVector<Box>> BoxWalker::walk(const Box &box) {
  seen.clear();
  for (Value yielded : region.front().getTerminator()->getOperands())
    visit(yielded, box);
  SmallVector<SmallVector<Box>> boxes;
  for (Value argument : region.getArguments()) {
    auto found = seen.find(argument);
    boxes.push_back(found == seen.end() ? SmallVector<Box>() : SmallVector<Box>(found->second));
  }
  return boxes;
}

void BoxWalker::visit(Value tensor, const Box &box) {
  SmallVector<Box, 1> &known = seen[tensor];
  if (llvm::any_of(known, [&](const Box &other) { return holds(other, box); }))
    return;
  known.push_back(box);
  if (isa<BlockArgument>(tensor))
    return;
  Operation *op = tensor.getDefiningOp();
  if (auto generic = dyn_cast<linalg::GenericOp>(op))
    return visitGeneric(generic, cast<OpResult>(tensor), box);
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op))
    return visitInsertSlice(insert, box);
  if (auto extract = dyn_cast<tensor::ExtractSliceOp>(op))
    return visitExtractSlice(extract, box);
  // Of other ops, reshapes keep the order of the elements; what else reads tensors is taken to read all of them.
  bool isReshape = isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op);
  for (Value operand : op->getOperands())
    if (isa<RankedTensorType>(operand.getType()))
      visit(operand, isReshape ? trainkernel::reshapeBox(box, shapeOf(tensor), shapeOf(operand)) : wholeOf(operand));
}

const Box &BoxWalker::loopsOf(linalg::GenericOp op) {
  auto [known, isNew] = loops.try_emplace(op);
  if (isNew)
    for (int64_t extent : op.getStaticLoopRanges())
      known->second.push_back({0, extent - 1});
  return known->second;
}

void BoxWalker::visitGeneric(linalg::GenericOp op, OpResult result, const Box &box) {
  Box loops = loopsOf(op);
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(result.getResultNumber()));
  for (auto [expr, interval] : llvm::zip(map.getResults(), box))
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      loops[dim.getPosition()] = interval;
  for (OpOperand &operand : op->getOpOperands()) {
    if (!isa<RankedTensorType>(operand.get().getType()) || op.getMatchingBlockArgument(&operand).use_empty())
      continue;
    Box read;
    for (auto [expr, extent] : llvm::zip(op.getMatchingIndexingMap(&operand).getResults(), shapeOf(operand.get())))
      read.push_back(evaluate(expr, loops).value_or(Interval{0, extent - 1}));
    visit(operand.get(), read);
  }
  for (Value extracted : extractedTensors(op))
    visit(extracted, wholeOf(extracted));
}

// Both tensors are read, the inserted one at its nearest element: see `ElementEmitter`.
void BoxWalker::visitInsertSlice(tensor::InsertSliceOp op, const Box &box) {
  visit(op.getDest(), box);
  llvm::SmallBitVector dropped = op.getDroppedDims();
  Box source;
  for (auto [dim, interval] : llvm::enumerate(box)) {
    if (dropped.test(dim))
      continue;
    int64_t offset = op.getStaticOffset(dim), size = op.getStaticSize(dim), step = op.getStaticStride(dim);
    auto nearest = [&](int64_t at) { return std::clamp<int64_t>((at - offset) / step, 0, size - 1); };
    // Below the offset the code's index wraps around, and is taken to the last element.
    bool wraps = interval.first < offset;
    source.push_back(wraps ? Interval{0, size - 1} : Interval{nearest(interval.first), nearest(interval.last)});
  }
  visit(op.getSource(), source);
}

void BoxWalker::visitExtractSlice(tensor::ExtractSliceOp op, const Box &box) {
  llvm::SmallBitVector dropped = op.getDroppedDims();
  Box source;
  size_t next = 0;
  for (size_t dim = 0; dim < dropped.size(); ++dim) {
    Interval interval = dropped.test(dim) ? Interval{0, 0} : box[next++];
    int64_t offset = op.getStaticOffset(dim), step = op.getStaticStride(dim);
    source.push_back({interval.first * step + offset, interval.last * step + offset});
  }
  visit(op.getSource(), source);
}

SmallVector<SmallVector<Box>> mlir::megakernel::boxesRead(Region &region, const Box &box) {
  return BoxWalker(region).walk(box);
}

static Footprint footprintOf(TileOp tile, ArrayRef<int64_t> shape) {
  TileGeometry geometry(tile);
  Footprint footprint;
  footprint.shape.assign(shape.begin(), shape.end());
  footprint.numTiles = geometry.numTiles;
  footprint.firstCta = tile.getFirstCta();
  return footprint;
}

TileFootprints mlir::megakernel::footprintsOf(TileOp tile) {
  TileFootprints found;
  auto reads = std::make_shared<TileReads>(tile);
  for (auto [index, input] : llvm::enumerate(tile.getInputs())) {
    Footprint footprint = footprintOf(tile, cast<MemRefType>(input.getType()).getShape());
    footprint.boxesOf = [reads, index = index](int64_t number) { return SmallVector<Box>(reads->of(number, index)); };
    found.inputs.push_back(std::make_shared<const Footprint>(std::move(footprint)));
  }
  TileGeometry geometry(tile);
  Footprint footprint = footprintOf(tile, geometry.shape());
  footprint.tileSizes.assign(geometry.sizes.begin(), geometry.sizes.end());
  footprint.boxesOf = [shape = footprint.shape, sizes = footprint.tileSizes](int64_t number) {
    return SmallVector<Box>{trainkernel::boxOfTile(shape, sizes, number)};
  };
  found.outputs = std::make_shared<const Footprint>(std::move(footprint));
  return found;
}

Placement mlir::megakernel::placementOf(KernelOp kernel) {
  return {static_cast<int64_t>(kernel.getGrid()), static_cast<int64_t>(kernel.getCluster()),
          kernel.getTarget() == "cpu"};
}

SyncScope mlir::megakernel::joinedBy(KernelOp kernel, Scope scope) {
  if (scope == Scope::Grid || kernel.getGrid() == 1)
    return SyncScope::Grid;
  if (scope == Scope::Cluster)
    return kernel.getGrid() == kernel.getCluster() ? SyncScope::Grid : SyncScope::Cluster;
  return SyncScope::Cta;
}

Scope mlir::megakernel::barrierScope(KernelOp kernel, SyncScope scope) {
  if (scope == SyncScope::Cta || kernel.getGrid() == 1)
    return Scope::Cta;
  return scope == SyncScope::Cluster || kernel.getGrid() == kernel.getCluster() ? Scope::Cluster : Scope::Grid;
}
