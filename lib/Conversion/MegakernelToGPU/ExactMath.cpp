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

namespace {
/// Float32 arithmetic, on scalars or on vectors of one length.
class FloatMath {
public:
  explicit FloatMath(Operation *op) : FloatMath(OpBuilder(op), op) {}
  /// The arithmetic of `op` elsewhere.
  FloatMath(const OpBuilder &builder, Operation *op)
      : builder(builder), loc(op->getLoc()), type(op->getResult(0).getType()) {}

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
  Value isZero(Value a) { return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OEQ, a, constant(0)); }
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

  /// The inverse of `b`, where both are normal.
  Value inverse(Value b, Value minusB) {
    Value estimate = approximate("llvm.nvvm.rcp.approx.ftz.f", b);
    return fma(fma(minusB, estimate, constant(1)), estimate, estimate);
  }
  /// The square root of `a`, where that is not small, zero or infinite.
  Value root(Value a) {
    Value inverse = approximate("llvm.nvvm.rsqrt.approx.ftz.f", a);
    Value estimate = mul(a, inverse), half = mul(inverse, constant(0.5));
    return fma(fma(neg(estimate), estimate, a), half, estimate);
  }

  /// Whether a lane of `a` is less, or greater, than `bound`.
  Value anyBelow(Value a, double bound) {
    return isBeyond(arith::CmpFPredicate::OLT, reduce(vector::CombiningKind::MINNUMF, a), bound);
  }
  Value anyAbove(Value a, double bound) {
    return isBeyond(arith::CmpFPredicate::OGT, reduce(vector::CombiningKind::MAXNUMF, a), bound);
  }

  /// `usual`, or what `rare` makes where one of `conditions` holds.
  Value choose(Value usual, ArrayRef<Value> conditions, function_ref<Value(OpBuilder &)> rare) {
    Value isRare = conditions.front();
    for (Value condition : conditions.drop_front())
      isRare = arith::OrIOp::create(builder, loc, isRare, condition);
    auto branch = scf::IfOp::create(builder, loc, type, isRare, /*withElseRegion=*/true);
    OpBuilder then = branch.getThenBodyBuilder(), otherwise = branch.getElseBodyBuilder();
    scf::YieldOp::create(then, loc, rare(then));
    scf::YieldOp::create(otherwise, loc, usual);
    return branch.getResult(0);
  }

private:
  Value call(StringRef intrinsic, Value a) {
    return LLVM::CallIntrinsicOp::create(builder, loc, a.getType(), builder.getStringAttr(intrinsic), a).getResult(0);
  }
  Value isBeyond(arith::CmpFPredicate predicate, Value a, double bound) {
    Value limit = arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(bound));
    return arith::CmpFOp::create(builder, loc, predicate, a, limit);
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

//===----------------------------------------------------------------------===//
// Rare operands
//===----------------------------------------------------------------------===//

// The device library's root is an approximation; LLVM's is rounded correctly. A call, since the lowering of GPU modules
// takes LLVM's own op for one that should have become the library's.
static Value exactRoot(OpBuilder &builder, math::SqrtOp op) {
  return LLVM::CallIntrinsicOp::create(builder, op.getLoc(), op.getType(), builder.getStringAttr("llvm.sqrt"),
                                       op.getOperand())
      .getResult(0);
}

// A function of the module that does what `op` does for all operands. Rare ones are no reason for more code around each
// op: code that runs but once takes as long to fetch as to run.
static func::FuncOp functionOf(Operation *op) {
  auto module = op->getParentOfType<gpu::GPUModuleOp>();
  Type type = op->getResult(0).getType();
  auto vector = dyn_cast<VectorType>(type);
  std::string name =
      ("exact_" + op->getName().stripDialect() + "_" + Twine(vector ? vector.getNumElements() : 1)).str();
  Operation *known = module.lookupSymbol(name);
  // The name may be the step's own.
  for (; known && !isa<func::FuncOp>(known); known = module.lookupSymbol(name))
    name += "_";
  if (known)
    return cast<func::FuncOp>(known);
  OpBuilder builder(&module.getBodyRegion().front(), module.getBodyRegion().front().begin());
  auto function = func::FuncOp::create(builder, op->getLoc(), name,
                                       builder.getFunctionType(SmallVector<Type>(op->getNumOperands(), type), type));
  function.setPrivate();
  // "convergent" keeps LLVM from drawing other code into the branch, and from jumping out of it or into it.
  function->setAttr("passthrough", builder.getStrArrayAttr({"noinline", "convergent"}));
  function->setAttr("llvm.linkage", LLVM::LinkageAttr::get(builder.getContext(), LLVM::Linkage::Internal));
  builder.setInsertionPointToEnd(function.addEntryBlock());
  Operation *clone = builder.clone(*op);
  clone->setOperands(function.getArguments());
  Value result = clone->getResult(0);
  if (auto root = dyn_cast<math::SqrtOp>(clone)) {
    result = exactRoot(builder, root);
    clone->erase();
  }
  func::ReturnOp::create(builder, op->getLoc(), result);
  return function;
}

//===----------------------------------------------------------------------===//
// Usual operands
//===----------------------------------------------------------------------===//

static Value callExact(OpBuilder &builder, Operation *op) {
  return func::CallOp::create(builder, op->getLoc(), functionOf(op), op->getOperands()).getResult(0);
}

// A quotient that was computed 2^64 times as large and is subnormal: one more addition, to a multiple of the unit that
// subnormal numbers have, rounds it once.
static Value roundSmall(FloatMath math, Value large, Value minusB, Value inverse, Value rounded) {
  Value residual = math.fma(minusB, math.mul(rounded, math.constant(0x1p64)), large);
  Value rest = math.mul(residual, inverse);
  rest = math.fma(math.fma(minusB, rest, residual), inverse, rest);
  return math.fma(rest, math.constant(0x1p-64), rounded);
}

// Of a small dividend the residuals would be subnormal, so all is computed 2^64 times as large. The residuals of a zero
// would lose its sign, and those of what is not finite are not numbers. Adam's moments of what gets no gradient are
// subnormal, so that small results have code in place.
static Value divide(FloatMath math, arith::DivFOp op) {
  Value a = op.getLhs(), b = op.getRhs(), sizeOfB = math.abs(b), minusB = math.neg(b);
  Value inverse = math.inverse(b, minusB);
  auto exact = [&](OpBuilder &builder) { return callExact(builder, op); };
  // Both are normal numbers.
  SmallVector<Value> isRare{math.anyBelow(sizeOfB, 0x1p-126), math.anyAbove(sizeOfB, 0x1p126)};
  if (matchPattern(a, m_OneFloat()))
    return math.choose(inverse, isRare, exact);
  Value large = math.mul(a, math.constant(0x1p64)), first = math.mul(large, inverse), size = math.abs(first);
  Value quotient = first;
  for (int step = 0; step < 2; ++step)
    quotient = math.fma(math.fma(minusB, quotient, large), inverse, quotient);
  isRare.push_back(math.anyAbove(size, 0x1p126));
  Value isZero = math.isZero(a), down = math.constant(0x1p-64);
  Value rounded = math.mul(math.select(isZero, first, quotient), down);
  Value isSmall = math.anyBelow(math.select(isZero, math.constant(1), size), 0x1p-61);
  Value result = math.choose(rounded, isSmall, [&](OpBuilder &builder) {
    FloatMath inBranch(builder, op);
    return inBranch.select(isZero, rounded, roundSmall(inBranch, large, minusB, inverse, rounded));
  });
  return math.choose(result, isRare, exact);
}

static Value takeRoot(FloatMath math, math::SqrtOp op) {
  Value a = op.getOperand(), isZero = math.isZero(a);
  Value root = math.mul(math.root(math.mul(a, math.constant(0x1p64))), math.constant(0x1p-32));
  return math.choose(math.select(isZero, a, root), {math.anyBelow(a, 0), math.anyAbove(a, 0x1p62)},
                     [&](OpBuilder &builder) { return callExact(builder, op); });
}

// LLVM multiplies by the inverse where that is exact: by a power of two.
static bool hasExactInverse(Value divisor) {
  FloatAttr number;
  DenseFPElementsAttr numbers;
  if (matchPattern(divisor, m_Constant(&numbers)) && numbers.isSplat())
    return numbers.getSplatValue<APFloat>().getExactInverse(nullptr);
  if (auto broadcast = divisor.getDefiningOp<vector::BroadcastOp>())
    divisor = broadcast.getSource();
  return matchPattern(divisor, m_Constant(&number)) && number.getValue().getExactInverse(nullptr);
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
    else if (isNarrow && !hasExactInverse(op->getOperand(1)))
      result = divide(FloatMath(op), cast<arith::DivFOp>(op));
    if (!result)
      continue;
    op->replaceAllUsesWith(ValueRange(result));
    op->erase();
  }
}

void mlir::megakernel::lowerAbsolutes(ModuleOp module) {
  module.walk([](math::AbsIOp op) {
    OpBuilder builder(op);
    // As in eager, the least number stays as it is.
    Value result =
        LLVM::AbsOp::create(builder, op.getLoc(), op.getType(), op.getOperand(), /*is_int_min_poison=*/false);
    op.replaceAllUsesWith(result);
    op.erase();
  });
}
