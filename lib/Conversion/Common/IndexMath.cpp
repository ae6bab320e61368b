//===- IndexMath.cpp - folded index arithmetic ----------------------------===//

#include "lib/Conversion/Common/IndexMath.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

#include <numeric>

using namespace mlir;
using namespace mlir::megakernel;

std::optional<int64_t> mlir::megakernel::constantIndex(Value index) {
  APInt value;
  if (matchPattern(index, m_ConstantInt(&value)))
    return value.getSExtValue();
  return std::nullopt;
}

Value IndexMath::constant(int64_t value) const { return arith::ConstantIndexOp::create(builder, loc, value); }

Value IndexMath::add(Value a, Value b) const { return builder.createOrFold<arith::AddIOp>(loc, a, b); }
Value IndexMath::sub(Value a, Value b) const { return builder.createOrFold<arith::SubIOp>(loc, a, b); }
Value IndexMath::mul(Value a, Value b) const { return builder.createOrFold<arith::MulIOp>(loc, a, b); }

Value IndexMath::div(Value a, Value b) const {
  if (constantIndex(b) == 1)
    return a;
  return builder.createOrFold<arith::DivUIOp>(loc, a, b);
}

Value IndexMath::rem(Value a, Value b) const {
  if (constantIndex(b) == 1)
    return constant(0);
  return builder.createOrFold<arith::RemUIOp>(loc, a, b);
}

Value IndexMath::less(Value a, Value b) const {
  return builder.createOrFold<arith::CmpIOp>(loc, arith::CmpIPredicate::ult, a, b);
}

Value IndexMath::both(Value a, Value b) const {
  if (!a || !b)
    return a ? a : b;
  return builder.createOrFold<arith::AndIOp>(loc, a, b);
}

Value IndexMath::min(Value a, Value b) const { return builder.createOrFold<arith::MinUIOp>(loc, a, b); }

SmallVector<Value> IndexMath::delinearize(Value linear, ArrayRef<int64_t> extents) const {
  SmallVector<Value> coordinates(extents.size());
  for (size_t i = extents.size(); i-- > 0;) {
    // The outermost coordinate is what is left.
    coordinates[i] = i == 0 ? linear : rem(linear, extents[i]);
    if (i > 0)
      linear = div(linear, extents[i]);
  }
  return coordinates;
}

static std::optional<LaneIndex> evaluateBinary(const IndexMath &math, AffineBinaryOpExpr expr, const LaneIndex &lhs,
                                               const LaneIndex &rhs) {
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return LaneIndex{math.add(lhs.base, rhs.base), lhs.stride + rhs.stride, std::gcd(lhs.divisor, rhs.divisor)};
  case AffineExprKind::Mul: {
    std::optional<int64_t> factor = constantIndex(rhs.base);
    if (!factor || !rhs.isUniform())
      return std::nullopt;
    return LaneIndex{math.mul(lhs.base, rhs.base), lhs.stride * *factor, lhs.divisor * std::max<int64_t>(1, *factor)};
  }
  case AffineExprKind::FloorDiv:
  case AffineExprKind::Mod:
    if (!lhs.isUniform() || !rhs.isUniform())
      return std::nullopt;
    return LaneIndex{expr.getKind() == AffineExprKind::Mod ? math.rem(lhs.base, rhs.base)
                                                           : math.div(lhs.base, rhs.base)};
  default:
    return std::nullopt;
  }
}

std::optional<LaneIndex> mlir::megakernel::evaluate(const IndexMath &math, AffineExpr expr, ArrayRef<LaneIndex> dims) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dims[dim.getPosition()];
  if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
    int64_t value = constant.getValue();
    return LaneIndex{math.constant(value), 0, value == 0 ? int64_t(1) << 20 : std::abs(value)};
  }
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return std::nullopt;
  std::optional<LaneIndex> lhs = evaluate(math, binary.getLHS(), dims), rhs = evaluate(math, binary.getRHS(), dims);
  if (!lhs || !rhs)
    return std::nullopt;
  return evaluateBinary(math, binary, *lhs, *rhs);
}
