//===- ExpandWindows.cpp - windows as tensors of their own ----------------===//

#include "lib/Transforms/ExpandWindows/ExpandWindows.h"

#include "dialects/Megakernel/FusedRegion.h"
#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKEXPANDWINDOWS
#include "lib/Transforms/ExpandWindows/ExpandWindows.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using linalg::GenericOp;

namespace {
struct ExpandWindowsPass : public megakernel::impl::TkExpandWindowsBase<ExpandWindowsPass> {
  void runOnOperation() override {
    for (auto op : llvm::to_vector(getOperation().getBody().front().getOps<GenericOp>()))
      if (isReduction(op) && !op.hasDynamicShape())
        expand(op);
  }

  static void expand(GenericOp op) {
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    for (OpOperand *operand : op.getDpsInputOperands()) {
      AffineMap &map = maps[operand->getOperandNumber()];
      if (map.isProjectedPermutation(/*allowZeroInResults=*/false) || !isa<RankedTensorType>(operand->get().getType()))
        continue;
      SmallVector<unsigned> loops;
      for (unsigned loop = 0; loop < map.getNumDims(); ++loop)
        if (map.isFunctionOfDim(loop))
          loops.push_back(loop);
      operand->set(windowsOf(op, operand, map, loops));
      map = AffineMap::getMultiDimMapWithTargets(map.getNumDims(), loops, op.getContext());
    }
    OpBuilder builder(op);
    op.setIndexingMapsAttr(builder.getAffineMapArrayAttr(maps));
  }

  // The operand's elements over the loops that its map reads.
  static Value windowsOf(GenericOp op, OpOperand *operand, AffineMap map, ArrayRef<unsigned> loops) {
    OpBuilder builder(op);
    SmallVector<int64_t> ranges = op.getStaticLoopRanges(), shape;
    SmallVector<AffineExpr> places(ranges.size(), builder.getAffineConstantExpr(0));
    for (auto [place, loop] : llvm::enumerate(loops)) {
      shape.push_back(ranges[loop]);
      places[loop] = builder.getAffineDimExpr(place);
    }
    Type element = cast<RankedTensorType>(operand->get().getType()).getElementType();
    Value empty = tensor::EmptyOp::create(builder, op.getLoc(), shape, element);
    SmallVector<AffineMap> maps = {map.replaceDimsAndSymbols(places, {}, loops.size(), 0),
                                   builder.getMultiDimIdentityMap(loops.size())};
    SmallVector<utils::IteratorType> iterators(loops.size(), utils::IteratorType::parallel);
    return GenericOp::create(
               builder, op.getLoc(), empty.getType(), operand->get(), empty, maps, iterators,
               [](OpBuilder &nested, Location loc, ValueRange args) { linalg::YieldOp::create(nested, loc, args[0]); })
        .getResult(0);
  }
};
} // namespace
