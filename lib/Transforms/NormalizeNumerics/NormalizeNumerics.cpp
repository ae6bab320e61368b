//===- NormalizeNumerics.cpp - explicit accumulation and rounding ---------===//

#include "lib/Transforms/NormalizeNumerics/NormalizeNumerics.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKNORMALIZENUMERICS
#include "lib/Transforms/NormalizeNumerics/NormalizeNumerics.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using linalg::GenericOp;

static bool isNarrowFloat(Type type) { return type.isBF16() || type.isF16(); }

// An elementwise op over all of `source` with the given body.
static Value mapElements(PatternRewriter &rewriter, Location loc, Value source, Type elementType,
                         function_ref<Value(OpBuilder &, Value)> body) {
  auto type = cast<RankedTensorType>(source.getType());
  Value init = tensor::EmptyOp::create(rewriter, loc, type.getShape(), elementType);
  SmallVector<AffineMap> maps(2, rewriter.getMultiDimIdentityMap(type.getRank()));
  SmallVector<utils::IteratorType> iterators(type.getRank(), utils::IteratorType::parallel);
  return GenericOp::create(rewriter, loc, init.getType(), source, init, maps, iterators,
                           [&](OpBuilder &builder, Location nested, ValueRange args) {
                             linalg::YieldOp::create(builder, nested, body(builder, args[0]));
                           })
      .getResult(0);
}

namespace {
// Accumulate in f32, round once. A body that is more than one op is left alone: then the rounding is the user's.
struct WidenAccumulator : OpRewritePattern<GenericOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GenericOp op, PatternRewriter &rewriter) const override {
    if (op.getNumReductionLoops() == 0 || op.getNumDpsInits() != 1 || op.getNumDpsInputs() != 1)
      return failure();
    auto type = cast<RankedTensorType>(op.getResult(0).getType());
    Type narrow = type.getElementType();
    Block &body = op.getRegion().front();
    Operation *combiner = body.getTerminator()->getOperand(0).getDefiningOp();
    if (!isNarrowFloat(narrow) || body.getOperations().size() != 2 ||
        !isa_and_nonnull<arith::AddFOp, arith::MulFOp, arith::MaximumFOp, arith::MinimumFOp, arith::MaxNumFOp,
                         arith::MinNumFOp>(combiner) ||
        !llvm::is_contained(combiner->getOperands(), body.getArgument(0)) ||
        !llvm::is_contained(combiner->getOperands(), body.getArgument(1)))
      return failure();
    Location loc = op.getLoc();
    Type wide = rewriter.getF32Type();
    auto extend = [&](OpBuilder &builder, Value value) -> Value {
      return value.getType() == wide ? value : arith::ExtFOp::create(builder, loc, wide, value);
    };
    Value init = mapElements(rewriter, loc, op.getDpsInits()[0], wide, extend);
    auto sum = GenericOp::create(rewriter, loc, init.getType(), op.getDpsInputs(), init, op.getIndexingMapsArray(),
                                 op.getIteratorTypesArray(), [&](OpBuilder &builder, Location nested, ValueRange args) {
                                   Value element = extend(builder, args[0]);
                                   OperationState state(nested, combiner->getName(), {element, args[1]}, wide);
                                   state.propertiesAttr = combiner->getPropertiesAsAttribute();
                                   linalg::YieldOp::create(builder, nested, builder.create(state)->getResults());
                                 });
    Value rounded = mapElements(rewriter, loc, sum.getResult(0), narrow, [&](OpBuilder &builder, Value value) {
      return arith::TruncFOp::create(builder, loc, narrow, value);
    });
    rewriter.replaceOp(op, rounded);
    return success();
  }
};

// contraction(extf(a), b) reads a and extends in its body.
struct ExtendInsideContraction : OpRewritePattern<GenericOp> {
  using OpRewritePattern::OpRewritePattern;

  static Value narrowSource(Value operand) {
    auto cast = operand.getDefiningOp<GenericOp>();
    if (!cast || cast.getNumDpsInputs() != 1 || cast.getNumDpsInits() != 1 || cast.getNumReductionLoops() != 0 ||
        !llvm::all_of(cast.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
      return nullptr;
    Block &body = cast.getRegion().front();
    auto extend = body.getTerminator()->getOperand(0).getDefiningOp<arith::ExtFOp>();
    if (!extend || extend.getIn() != body.getArgument(0) || !isNarrowFloat(extend.getIn().getType()))
      return nullptr;
    return cast.getDpsInputs()[0];
  }

  LogicalResult matchAndRewrite(GenericOp op, PatternRewriter &rewriter) const override {
    if (!linalg::isaContractionOpInterface(cast<linalg::LinalgOp>(op.getOperation())))
      return failure();
    bool changed = false;
    for (OpOperand *input : op.getDpsInputOperands()) {
      Value source = narrowSource(input->get());
      if (!source)
        continue;
      BlockArgument argument = op.getMatchingBlockArgument(input);
      Type wide = argument.getType();
      rewriter.modifyOpInPlace(op, [&] {
        input->set(source);
        argument.setType(cast<RankedTensorType>(source.getType()).getElementType());
        rewriter.setInsertionPointToStart(argument.getOwner());
        auto extend = arith::ExtFOp::create(rewriter, op.getLoc(), wide, argument);
        argument.replaceAllUsesExcept(extend, extend);
      });
      changed = true;
    }
    return success(changed);
  }
};

// Rounds a float64 constant the way a C cast does, which is what PyTorch does to a Python scalar.
struct RoundConstant : OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    APFloat value(0.0);
    auto type = dyn_cast<FloatType>(op.getType());
    if (!type || !matchPattern(op.getIn(), m_ConstantFloat(&value)))
      return failure();
    bool inexact = false;
    value.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &inexact);
    rewriter.replaceOpWithNewOp<arith::ConstantOp>(op, rewriter.getFloatAttr(type, value));
    return success();
  }
};

// PyTorch's narrow types are made from float32 only, so float64 is rounded twice.
struct NarrowInTwoSteps : OpRewritePattern<arith::TruncFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    if (!op.getIn().getType().isF64() || !isNarrowFloat(op.getType()) || matchPattern(op.getIn(), m_Constant()))
      return failure();
    Value single = arith::TruncFOp::create(rewriter, op.getLoc(), rewriter.getF32Type(), op.getIn());
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, op.getType(), single);
    return success();
  }
};

// A sum of bools is true where any of them is, as in PyTorch; in one bit it would wrap.
struct AddBoolsByOr : OpRewritePattern<arith::AddIOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::AddIOp op, PatternRewriter &rewriter) const override {
    if (!op.getType().isInteger(1))
      return failure();
    rewriter.replaceOpWithNewOp<arith::OrIOp>(op, op.getLhs(), op.getRhs());
    return success();
  }
};

// A CPU stops at a division by zero and at one that overflows. Eager PyTorch raises at the first on a CPU and returns
// what the hardware does on a GPU; here quotient and remainder are 0, as in NumPy. The second wraps around, as if the
// divisor were 1.
template <typename DivisionOp> struct DivideSafely : OpRewritePattern<DivisionOp> {
  using OpRewritePattern<DivisionOp>::OpRewritePattern;

  LogicalResult matchAndRewrite(DivisionOp op, PatternRewriter &rewriter) const override {
    auto type = dyn_cast<IntegerType>(op.getType());
    APInt known;
    bool isSafe = matchPattern(op.getRhs(), m_ConstantInt(&known)) && !known.isZero() && !known.isAllOnes();
    if (!type || isSafe)
      return failure();
    Location loc = op.getLoc();
    auto constant = [&](APInt value) -> Value {
      return arith::ConstantOp::create(rewriter, loc, rewriter.getIntegerAttr(type, value));
    };
    auto equals = [&](Value value, APInt to) -> Value {
      return arith::CmpIOp::create(rewriter, loc, arith::CmpIPredicate::eq, value, constant(to));
    };
    unsigned width = type.getWidth();
    Value overflows = arith::AndIOp::create(rewriter, loc, equals(op.getLhs(), APInt::getSignedMinValue(width)),
                                            equals(op.getRhs(), APInt::getAllOnes(width)));
    Value isZero = equals(op.getRhs(), APInt::getZero(width));
    Value stops = arith::OrIOp::create(rewriter, loc, overflows, isZero);
    Value divisor = arith::SelectOp::create(rewriter, loc, stops, constant(APInt(width, 1)), op.getRhs());
    Value result = DivisionOp::create(rewriter, loc, op.getLhs(), divisor);
    if constexpr (std::is_same_v<DivisionOp, arith::DivSIOp>)
      result = arith::SelectOp::create(rewriter, loc, isZero, constant(APInt::getZero(width)), result);
    rewriter.replaceOp(op, result);
    return success();
  }
};

// Drops results that nobody reads and that no other result is computed from: the index of a maximum, for instance.
struct DropUnusedReductionResults : OpRewritePattern<GenericOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(GenericOp op, PatternRewriter &rewriter) const override {
    if (op.getNumReductionLoops() == 0 || op->getNumResults() < 2)
      return failure();
    SmallVector<unsigned> kept;
    for (OpResult result : op->getResults())
      if (!result.use_empty())
        kept.push_back(result.getResultNumber());
    if (kept.empty() || kept.size() == op->getNumResults())
      return failure();
    Block &body = op.getRegion().front();
    llvm::SmallPtrSet<Operation *, 8> needed;
    SmallVector<Value> worklist;
    for (unsigned index : kept)
      worklist.push_back(body.getTerminator()->getOperand(index));
    llvm::SmallDenseSet<Value> arguments;
    while (!worklist.empty()) {
      Value value = worklist.pop_back_val();
      if (isa<BlockArgument>(value))
        arguments.insert(value);
      else if (value.getParentBlock() == &body && needed.insert(value.getDefiningOp()).second)
        llvm::append_range(worklist, value.getDefiningOp()->getOperands());
    }
    SmallVector<Value> inits;
    SmallVector<AffineMap> maps;
    for (OpOperand *input : op.getDpsInputOperands())
      maps.push_back(op.getMatchingIndexingMap(input));
    for (OpOperand &init : op.getDpsInitsMutable()) {
      unsigned index = init.getOperandNumber() - op.getNumDpsInputs();
      if (llvm::is_contained(kept, index)) {
        inits.push_back(init.get());
        maps.push_back(op.getMatchingIndexingMap(&init));
      } else if (arguments.contains(op.getMatchingBlockArgument(&init))) {
        return failure();
      }
    }
    auto narrowed =
        GenericOp::create(rewriter, op.getLoc(), TypeRange(ValueRange(inits)), op.getDpsInputs(), inits, maps,
                          op.getIteratorTypesArray(), [&](OpBuilder &builder, Location loc, ValueRange args) {
                            IRMapping mapping;
                            unsigned next = 0;
                            for (BlockArgument argument : body.getArguments()) {
                              unsigned number = argument.getArgNumber();
                              bool isInput = number < op.getNumDpsInputs();
                              if (isInput || llvm::is_contained(kept, number - op.getNumDpsInputs()))
                                mapping.map(argument, args[next++]);
                            }
                            for (Operation &inner : body.without_terminator())
                              if (needed.contains(&inner))
                                builder.clone(inner, mapping);
                            SmallVector<Value> yielded;
                            for (unsigned index : kept)
                              yielded.push_back(mapping.lookupOrDefault(body.getTerminator()->getOperand(index)));
                            linalg::YieldOp::create(builder, loc, yielded);
                          });
    for (auto [index, result] : llvm::zip(kept, narrowed->getResults()))
      rewriter.replaceAllUsesWith(op->getResult(index), result);
    rewriter.eraseOp(op);
    return success();
  }
};

struct NormalizeNumericsPass : public megakernel::impl::TkNormalizeNumericsBase<NormalizeNumericsPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    // Powers by small integers are products, as in PyTorch.
    populateMathAlgebraicSimplificationPatterns(patterns);
    patterns.add<WidenAccumulator, ExtendInsideContraction, RoundConstant, NarrowInTwoSteps, DropUnusedReductionResults,
                 AddBoolsByOr>(&getContext());
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns))))
      return signalPassFailure();
    // One walk: a greedy rewrite would make what it has made safe safe again.
    RewritePatternSet divisions(&getContext());
    divisions.add<DivideSafely<arith::DivSIOp>, DivideSafely<arith::RemSIOp>>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(divisions));
  }
};
} // namespace
