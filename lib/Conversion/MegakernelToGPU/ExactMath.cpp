//===- ExactMath.cpp - divisions and roots without branches ---------------===//
//
// PTX rounds quotients and square roots correctly, as PyTorch does, but each with a branch of its own around rare
// operands, which keeps the loads and the arithmetic of one from overlapping with those of the next. Here all lanes of
// a vector are computed together, by the sequences that ptxas has for usual operands (J.-M. Muller et al., Handbook of
// Floating-Point Arithmetic, section 4.7), and one branch is left for a vector with a rare operand.
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToGPU/CtaContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::megakernel;

// The device library's root is an approximation; LLVM's is rounded correctly. A call, since the lowering of GPU modules
// takes LLVM's own op for one that should have become the library's.
static Value exactRoot(OpBuilder &builder, math::SqrtOp op) {
  return LLVM::CallIntrinsicOp::create(builder, op.getLoc(), op.getType(), builder.getStringAttr("llvm.sqrt"),
                                       op.getOperand())
      .getResult(0);
}

// A function of the module that does what `op` does. Rare operands are no reason for more code around each op: code
// that runs but once takes as long to fetch as to run.
static func::FuncOp functionOf(Operation *op) {
  auto module = op->getParentOfType<gpu::GPUModuleOp>();
  Type type = op->getResult(0).getType();
  auto vector = dyn_cast<VectorType>(type);
  std::string name =
      ("exact_" + op->getName().stripDialect() + "_" + Twine(vector ? vector.getNumElements() : 1)).str();
  if (auto known = module.lookupSymbol<func::FuncOp>(name))
    return known;
  OpBuilder builder(&module.getBodyRegion().front(), module.getBodyRegion().front().begin());
  auto function = func::FuncOp::create(builder, op->getLoc(), name,
                                       builder.getFunctionType(SmallVector<Type>(op->getNumOperands(), type), type));
  function.setPrivate();
  function->setAttr("passthrough", builder.getStrArrayAttr({"noinline"}));
  function->setAttr("llvm.linkage", LLVM::LinkageAttr::get(builder.getContext(), LLVM::Linkage::Internal));
  builder.setInsertionPointToEnd(function.addEntryBlock());
  Operation *clone = builder.clone(*op);
  clone->setOperands(function.getArguments());
  Value result = clone->getResult(0);
  if (auto root = dyn_cast<math::SqrtOp>(clone)) {
    result = exactRoot(builder, root);
    root.erase();
  }
  func::ReturnOp::create(builder, op->getLoc(), result);
  return function;
}

namespace {
/// Float32 arithmetic, on scalars or on vectors of one length.
class FloatMath {
public:
  explicit FloatMath(Operation *op) : builder(op), loc(op->getLoc()), type(op->getResult(0).getType()) {}

  Value constant(double value) {
    Attribute element = builder.getF32FloatAttr(value);
    auto vector = dyn_cast<VectorType>(type);
    return arith::ConstantOp::create(
        builder, loc, vector ? cast<TypedAttr>(DenseElementsAttr::get(vector, element)) : cast<TypedAttr>(element));
  }
  Value mul(Value a, Value b) { return arith::MulFOp::create(builder, loc, a, b); }
  Value neg(Value a) { return arith::NegFOp::create(builder, loc, a); }
  Value fma(Value a, Value b, Value c) { return math::FmaOp::create(builder, loc, a, b, c); }
  Value abs(Value a) {
    if (Value shared = sharedElement(a))
      return vector::BroadcastOp::create(builder, loc, a.getType(), abs(shared));
    return math::AbsFOp::create(builder, loc, a);
  }
  Value compare(arith::CmpFPredicate predicate, Value a, double b) {
    return arith::CmpFOp::create(builder, loc, predicate, a, constant(b));
  }
  Value both(Value a, Value b) { return arith::AndIOp::create(builder, loc, a, b); }
  Value select(Value condition, Value a, Value b) { return arith::SelectOp::create(builder, loc, condition, a, b); }

  /// The GPU's approximation `intrinsic` of each element. One element that all lanes share is computed once.
  Value approximate(StringRef intrinsic, Value a) {
    auto vector = dyn_cast<VectorType>(a.getType());
    if (!vector)
      return call(intrinsic, a);
    if (Value shared = sharedElement(a))
      return vector::BroadcastOp::create(builder, loc, vector, call(intrinsic, shared));
    SmallVector<Value> lanes;
    for (int64_t lane = 0; lane < vector.getNumElements(); ++lane)
      lanes.push_back(call(intrinsic, vector::ExtractOp::create(builder, loc, a, lane)));
    return vector::FromElementsOp::create(builder, loc, vector, lanes);
  }

  /// `usual` where all lanes of `a` are normal and so are their inverses, else what `op` itself makes of them.
  Value chooseByRange(Value a, Value usual, Operation *op) {
    auto isBeyond = [&](arith::CmpFPredicate predicate, vector::CombiningKind kind, double bound) -> Value {
      Value limit = arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(bound));
      return arith::CmpFOp::create(builder, loc, predicate, reduce(kind, a), limit);
    };
    Value isRare = arith::OrIOp::create(builder, loc,
                                        isBeyond(arith::CmpFPredicate::OLT, vector::CombiningKind::MINNUMF, 0x1p-126),
                                        isBeyond(arith::CmpFPredicate::OGT, vector::CombiningKind::MAXNUMF, 0x1p126));
    auto branch = scf::IfOp::create(builder, loc, type, isRare, /*withElseRegion=*/true);
    OpBuilder then = branch.getThenBodyBuilder(), otherwise = branch.getElseBodyBuilder();
    scf::YieldOp::create(then, loc, func::CallOp::create(then, loc, functionOf(op), op->getOperands()).getResults());
    scf::YieldOp::create(otherwise, loc, usual);
    return branch.getResult(0);
  }

private:
  Value call(StringRef intrinsic, Value a) {
    return LLVM::CallIntrinsicOp::create(builder, loc, a.getType(), builder.getStringAttr(intrinsic), a).getResult(0);
  }
  static Value sharedElement(Value a) {
    auto broadcast = a.getDefiningOp<vector::BroadcastOp>();
    return broadcast && broadcast.getSourceType().isF32() ? broadcast.getSource() : Value();
  }
  Value reduce(vector::CombiningKind kind, Value a) {
    if (!isa<VectorType>(a.getType()))
      return a;
    Value shared = sharedElement(a);
    return shared ? shared : vector::ReductionOp::create(builder, loc, kind, a).getResult();
  }

  OpBuilder builder;
  Location loc;
  Type type;
};
} // namespace

// Of a quotient that is exact or not finite the residual has nothing to say. Residuals are exact from numerators of
// 2^-101 on; below, a quotient can be off by a unit in the last place.
static Value divide(FloatMath math, arith::DivFOp op) {
  Value a = op.getLhs(), b = op.getRhs();
  Value estimate = math.approximate("llvm.nvvm.rcp.approx.ftz.f", b), minusB = math.neg(b);
  Value inverse = math.fma(math.fma(minusB, estimate, math.constant(1)), estimate, estimate), quotient = inverse;
  if (!matchPattern(a, m_OneFloat())) {
    Value first = math.mul(a, inverse), residual = math.fma(minusB, first, a), size = math.abs(residual);
    quotient = math.fma(residual, inverse, first);
    quotient = math.fma(math.fma(minusB, quotient, a), inverse, quotient);
    Value counts = math.both(math.compare(arith::CmpFPredicate::OGT, size, 0),
                             math.compare(arith::CmpFPredicate::OLT, size, std::numeric_limits<float>::infinity()));
    quotient = math.select(counts, quotient, first);
  }
  return math.chooseByRange(math.abs(b), quotient, op);
}

static Value takeRoot(FloatMath math, math::SqrtOp op) {
  Value a = op.getOperand();
  Value inverse = math.approximate("llvm.nvvm.rsqrt.approx.ftz.f", a);
  Value estimate = math.mul(a, inverse), half = math.mul(inverse, math.constant(0.5));
  Value root = math.fma(math.fma(math.neg(estimate), estimate, a), half, estimate);
  root = math.select(math.compare(arith::CmpFPredicate::OEQ, a, 0), a, root);
  Value size = math.select(math.compare(arith::CmpFPredicate::OEQ, a, 0), math.constant(1), a);
  return math.chooseByRange(size, root, op);
}

void mlir::megakernel::computeExactly(ModuleOp module) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isa<arith::DivFOp, math::SqrtOp>(op))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    OpBuilder builder(op);
    bool isNarrow = getElementTypeOrSelf(op->getResult(0).getType()).isF32();
    Value result;
    if (auto root = dyn_cast<math::SqrtOp>(op))
      result = isNarrow ? takeRoot(FloatMath(op), root) : exactRoot(builder, root);
    else if (isNarrow)
      result = divide(FloatMath(op), cast<arith::DivFOp>(op));
    if (!result)
      continue;
    op->replaceAllUsesWith(ValueRange(result));
    op->erase();
  }
}
