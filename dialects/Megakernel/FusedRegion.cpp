//===- FusedRegion.cpp - what a fused region computes ---------------------===//

#include "dialects/Megakernel/FusedRegion.h"
#include "dialects/Megakernel/MegakernelDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::megakernel;

bool mlir::megakernel::isReduction(linalg::GenericOp op) { return op.getNumReductionLoops() > 0; }

SmallVector<Value> mlir::megakernel::extractedTensors(Operation *op) {
  SmallVector<Value> tensors;
  for (Region &region : op->getRegions())
    region.walk([&](tensor::ExtractOp extract) {
      if (!region.isAncestor(extract.getTensor().getParentRegion()) &&
          !llvm::is_contained(tensors, extract.getTensor()))
        tensors.push_back(extract.getTensor());
    });
  return tensors;
}

SmallVector<Value> mlir::megakernel::valuesRead(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, extractedTensors(op));
  return values;
}

static bool isAllowed(Operation *op) {
  return isa<linalg::GenericOp, linalg::FillOp, tensor::EmptyOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp,
             tensor::ExtractSliceOp, tensor::InsertSliceOp, YieldOp>(op) ||
         op->hasTrait<OpTrait::ConstantLike>();
}

// Everything has to be known before the step runs: shapes, and where slices start.
static bool isStatic(Operation *op) {
  auto isStaticType = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return !tensor || (tensor.hasStaticShape() && tensor.getNumElements() > 0);
  };
  auto slice = dyn_cast<OffsetSizeAndStrideOpInterface>(op);
  return llvm::all_of(op->getOperandTypes(), isStaticType) && llvm::all_of(op->getResultTypes(), isStaticType) &&
         (!slice || (slice.getOffsets().empty() && slice.getStrides().empty()));
}

// The results of a reduction must be projections of its parallel loops, so that a tile of the result is a tile of the
// loops.
static LogicalResult verifyReductionMaps(linalg::GenericOp reduction) {
  for (AffineMap map : reduction.getIndexingMapsArray()) {
    if (!map.isProjectedPermutation(/*allowZeroInResults=*/false) && !map.isEmpty())
      return reduction.emitOpError("has the indexing map ")
             << AffineMapAttr::get(map) << " in a fused region, expected a projected permutation (F3)";
  }
  AffineMap first = reduction.getMatchingIndexingMap(reduction.getDpsInitOperand(0));
  for (OpOperand &init : reduction.getDpsInitsMutable())
    if (reduction.getMatchingIndexingMap(&init) != first)
      return reduction.emitOpError("has results with different indexing maps, expected one map for all (F3)");
  for (auto [loop, kind] : llvm::enumerate(reduction.getIteratorTypesArray()))
    if (first.isFunctionOfDim(loop) != (kind == utils::IteratorType::parallel))
      return reduction.emitOpError() << "has the " << utils::stringifyIteratorType(kind) << " loop " << loop
                                     << ", expected results over all parallel loops and no other (F3)";
  return success();
}

LogicalResult mlir::megakernel::verifyFusedRegion(Operation *op, Region &region) {
  linalg::GenericOp reduction;
  for (Operation &inner : region.front()) {
    if (!isAllowed(&inner)) {
      InFlightDiagnostic diag = op->emitOpError("holds an op that is not allowed in a fused region, expected "
                                                "constants, linalg.generic, linalg.fill or tensor views (F2)");
      diag.attachNote(inner.getLoc()) << "the op is '" << inner.getName() << "'";
      return diag;
    }
    if (!isStatic(&inner)) {
      InFlightDiagnostic diag = op->emitOpError("holds an op of dynamic or empty shape or dynamic offset, "
                                                "expected static shapes without zero extents (F2)");
      diag.attachNote(inner.getLoc()) << "the op is '" << inner.getName() << "'";
      return diag;
    }
    auto generic = dyn_cast<linalg::GenericOp>(inner);
    if (!generic || !isReduction(generic))
      continue;
    if (reduction) {
      InFlightDiagnostic diag = op->emitOpError("holds more than one reduction, expected at most one (F3)");
      diag.attachNote(generic.getLoc()) << "this is the second one";
      return diag;
    }
    reduction = generic;
    if (failed(verifyReductionMaps(reduction)))
      return failure();
  }
  auto yield = dyn_cast<YieldOp>(region.front().getTerminator());
  if (!yield)
    return op->emitOpError("must end with 'megakernel.yield'");
  if (yield.getOperands().empty())
    return op->emitOpError("yields nothing, expected at least one value");
  ArrayRef<int64_t> shape = cast<RankedTensorType>(yield.getOperand(0).getType()).getShape();
  for (Value value : yield.getOperands())
    if (cast<RankedTensorType>(value.getType()).getShape() != shape)
      return op->emitOpError("yields values of different shapes, expected one shape for all (F4)");
  if (reduction && cast<RankedTensorType>(reduction.getResult(0).getType()).getShape() != shape)
    return op->emitOpError("yields values of another shape than the reduction's result (F4)");
  return success();
}

FusedRegion FusedRegion::get(Region &region) {
  FusedRegion parts;
  auto yield = cast<YieldOp>(region.front().getTerminator());
  parts.yielded = llvm::to_vector(yield.getOperands());
  parts.parallelShape = llvm::to_vector(cast<RankedTensorType>(parts.yielded.front().getType()).getShape());
  for (auto generic : region.front().getOps<linalg::GenericOp>())
    if (isReduction(generic))
      parts.reduction = generic;
  if (!parts.reduction)
    return parts;
  AffineMap result = parts.reduction.getMatchingIndexingMap(parts.reduction.getDpsInitOperand(0));
  for (AffineExpr expr : result.getResults())
    parts.parallelLoops.push_back(cast<AffineDimExpr>(expr).getPosition());
  SmallVector<int64_t> ranges = parts.reduction.getStaticLoopRanges();
  for (auto [loop, kind] : llvm::enumerate(parts.reduction.getIteratorTypesArray()))
    if (kind == utils::IteratorType::reduction) {
      parts.reductionLoops.push_back(loop);
      parts.reductionShape.push_back(ranges[loop]);
    }
  return parts;
}

static bool isFloatOfAtMost32Bits(Type type) {
  auto floatType = dyn_cast<FloatType>(getElementTypeOrSelf(type));
  return floatType && floatType.getWidth() <= 32;
}

bool FusedRegion::isContraction() {
  if (!reduction)
    return false;
  auto op = cast<linalg::LinalgOp>(reduction.getOperation());
  if (!linalg::isaContractionOpInterface(op) ||
      !llvm::all_of(reduction.getInputs().getTypes(), isFloatOfAtMost32Bits) ||
      !getElementTypeOrSelf(reduction.getResult(0).getType()).isF32())
    return false;
  FailureOr<linalg::ContractionDimensions> dims = linalg::inferContractionDims(op);
  return succeeded(dims) && !dims->m.empty() && !dims->n.empty() && !dims->k.empty();
}
