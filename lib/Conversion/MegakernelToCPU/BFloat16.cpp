//===- BFloat16.cpp - bfloat16 as integers --------------------------------===//
//
// Without AVX512-BF16, LLVM moves scalar bfloat16 by way of float32 and calls a library function to get back, which few
// systems have; with it, conversions flush subnormal numbers. So conversions are integer arithmetic here, as in
// PyTorch, and what is only moved is a 16-bit integer.
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToCPU/WorkerContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

using namespace mlir;
using namespace mlir::megakernel;

static Type withElement(Type type, Type element) {
  if (auto shaped = dyn_cast<ShapedType>(type))
    return shaped.clone(element);
  return element;
}

static bool isBFloat16(Type type) { return getElementTypeOrSelf(type).isBF16(); }

namespace {
/// From bfloat16 to float64 or integers by way of float32, which is exact.
template <typename CastOp> struct FromBFloat16 : OpRewritePattern<CastOp> {
  using OpRewritePattern<CastOp>::OpRewritePattern;

  LogicalResult matchAndRewrite(CastOp op, PatternRewriter &rewriter) const override {
    Type single = withElement(op.getType(), rewriter.getF32Type());
    if (!isBFloat16(op.getIn().getType()) || op.getType() == single)
      return failure();
    Value value = arith::ExtFOp::create(rewriter, op.getLoc(), single, op.getIn());
    rewriter.replaceOpWithNewOp<CastOp>(op, op.getType(), value);
    return success();
  }
};

/// From integers by way of float32, as in PyTorch.
template <typename CastOp> struct ToBFloat16 : OpRewritePattern<CastOp> {
  using OpRewritePattern<CastOp>::OpRewritePattern;

  LogicalResult matchAndRewrite(CastOp op, PatternRewriter &rewriter) const override {
    if (!isBFloat16(op.getType()))
      return failure();
    Type single = withElement(op.getType(), rewriter.getF32Type());
    Value value = CastOp::create(rewriter, op.getLoc(), single, op.getIn());
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, op.getType(), value);
    return success();
  }
};
} // namespace

static void setBits(Value value) {
  if (isBFloat16(value.getType()))
    value.setType(withElement(value.getType(), IntegerType::get(value.getContext(), 16)));
}

static void setConstantBits(arith::ConstantOp constant) {
  Type bits = IntegerType::get(constant.getContext(), 16);
  if (auto scalar = dyn_cast<FloatAttr>(constant.getValue()))
    constant.setValueAttr(IntegerAttr::get(bits, scalar.getValue().bitcastToAPInt()));
  else if (auto elements = dyn_cast<DenseElementsAttr>(constant.getValue()))
    constant.setValueAttr(cast<TypedAttr>(Attribute(elements.bitcast(bits))));
}

void mlir::megakernel::lowerBFloat16(func::FuncOp function) {
  RewritePatternSet steps(function.getContext()), patterns(function.getContext());
  steps.add<FromBFloat16<arith::ExtFOp>, FromBFloat16<arith::FPToSIOp>, FromBFloat16<arith::FPToUIOp>,
            ToBFloat16<arith::SIToFPOp>, ToBFloat16<arith::UIToFPOp>>(function.getContext());
  walkAndApplyPatterns(function, std::move(steps));
  arith::populateExpandBFloat16Patterns(patterns);
  walkAndApplyPatterns(function, std::move(patterns));
  function.walk([](Operation *op) {
    if (auto constant = dyn_cast<arith::ConstantOp>(op); constant && isBFloat16(constant.getType()))
      setConstantBits(constant);
    llvm::for_each(op->getResults(), setBits);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        llvm::for_each(block.getArguments(), setBits);
  });
  function.setFunctionType(FunctionType::get(function.getContext(), function.getBody().front().getArgumentTypes(), {}));
  function.walk([](arith::BitcastOp op) {
    if (op.getIn().getType() != op.getType())
      return;
    op.replaceAllUsesWith(op.getIn());
    op.erase();
  });
}
