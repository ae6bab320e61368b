//===- SplitReductions.cpp - reductions in two stages ---------------------===//

#include "lib/Transforms/SplitReductions/SplitReductions.h"

#include "dialects/Megakernel/FusedRegion.h"
#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKSPLITREDUCTIONS
#include "lib/Transforms/SplitReductions/SplitReductions.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using linalg::GenericOp;

namespace {
struct SplitReductionsPass : public megakernel::impl::TkSplitReductionsBase<SplitReductionsPass> {
  using TkSplitReductionsBase::TkSplitReductionsBase;

  void runOnOperation() override {
    SmallVector<GenericOp> ops;
    getOperation().walk([&](GenericOp op) {
      if (shouldSplit(op))
        ops.push_back(op);
    });
    for (GenericOp op : ops)
      split(op);
  }

private:
  // The combining op of the only result, where it is one associative op with a neutral element.
  static Operation *combinerOf(GenericOp op) {
    SmallVector<Operation *> combiners;
    if (op->getNumResults() != 1 || !matchReduction(op.getRegionOutputArgs(), 0, combiners) || combiners.size() != 1 ||
        !arith::getNeutralElement(combiners.front()))
      return nullptr;
    return combiners.front();
  }

  bool shouldSplit(GenericOp op) {
    if (op.getNumReductionLoops() < 2 || op.hasDynamicShape() ||
        linalg::isaContractionOpInterface(cast<linalg::LinalgOp>(op.getOperation())) || !combinerOf(op))
      return false;
    int64_t reduced = 1, results = 1;
    for (auto [extent, kind] : llvm::zip(op.getStaticLoopRanges(), op.getIteratorTypesArray()))
      (kind == utils::IteratorType::reduction ? reduced : results) *= extent;
    return reduced > maxReduced && results <= maxResults;
  }

  static Value filled(OpBuilder &builder, Location loc, ArrayRef<int64_t> shape, TypedAttr value) {
    Value scalar = arith::ConstantOp::create(builder, loc, value);
    Value empty = tensor::EmptyOp::create(builder, loc, shape, value.getType());
    unsigned rank = shape.size();
    SmallVector<AffineMap> maps = {AffineMap::get(rank, 0, builder.getContext()), builder.getMultiDimIdentityMap(rank)};
    SmallVector<utils::IteratorType> iterators(rank, utils::IteratorType::parallel);
    return GenericOp::create(builder, loc, empty.getType(), scalar, empty, maps, iterators,
                             [](OpBuilder &nested, Location nestedLoc, ValueRange args) {
                               linalg::YieldOp::create(nested, nestedLoc, args[0]);
                             })
        .getResult(0);
  }

  static void split(GenericOp op) {
    OpBuilder builder(op);
    Location loc = op.getLoc();
    Operation *combiner = combinerOf(op);
    SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
    unsigned outer = llvm::find(iterators, utils::IteratorType::reduction) - iterators.begin();
    SmallVector<int64_t> ranges = op.getStaticLoopRanges();
    OpOperand *init = op.getDpsInitOperand(0);
    AffineMap resultMap = op.getMatchingIndexingMap(init);
    // Stage one: the outermost reduction loop becomes the last dimension of the partial results.
    SmallVector<AffineExpr> partialExprs(resultMap.getResults());
    partialExprs.push_back(builder.getAffineDimExpr(outer));
    SmallVector<int64_t> partialShape(cast<RankedTensorType>(op.getResult(0).getType()).getShape());
    partialShape.push_back(ranges[outer]);
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    maps.back() = AffineMap::get(ranges.size(), 0, partialExprs, builder.getContext());
    iterators[outer] = utils::IteratorType::parallel;
    Value start = filled(builder, loc, partialShape, *arith::getNeutralElement(combiner));
    auto partial = GenericOp::create(builder, loc, start.getType(), op.getDpsInputs(), start, maps, iterators);
    IRMapping mapping;
    op.getRegion().cloneInto(&partial.getRegion(), mapping);
    // Stage two: the partial results of each result.
    unsigned rank = partialShape.size();
    SmallVector<utils::IteratorType> lastReduces(rank, utils::IteratorType::parallel);
    lastReduces.back() = utils::IteratorType::reduction;
    AffineMap all = builder.getMultiDimIdentityMap(rank);
    auto total =
        GenericOp::create(builder, loc, op.getResult(0).getType(), partial.getResult(0), init->get(),
                          ArrayRef<AffineMap>{all, all.dropResult(rank - 1)}, lastReduces,
                          [&](OpBuilder &nested, Location nestedLoc, ValueRange args) {
                            OperationState state(nestedLoc, combiner->getName(), args, TypeRange{args[0].getType()});
                            state.propertiesAttr = combiner->getPropertiesAsAttribute();
                            Value next = nested.create(state)->getResult(0);
                            linalg::YieldOp::create(nested, nestedLoc, next);
                          });
    op->replaceAllUsesWith(total);
    op.erase();
  }
};
} // namespace
