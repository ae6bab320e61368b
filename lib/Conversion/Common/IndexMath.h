//===- IndexMath.h - folded index arithmetic --------------------*- C++ -*-===//
//
// Indices during code generation: arithmetic that folds as it is built, and indices that run over vector lanes.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_INDEXMATH_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_INDEXMATH_H

#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::megakernel {

/// Builds non-negative index arithmetic, folding constants.
class IndexMath {
public:
  IndexMath(OpBuilder &builder, Location loc) : builder(builder), loc(loc) {}

  Value constant(int64_t value) const;
  Value add(Value a, Value b) const;
  Value sub(Value a, Value b) const;
  Value mul(Value a, Value b) const;
  Value div(Value a, Value b) const;
  Value rem(Value a, Value b) const;
  Value add(Value a, int64_t b) const { return add(a, constant(b)); }
  Value mul(Value a, int64_t b) const { return mul(a, constant(b)); }
  Value div(Value a, int64_t b) const { return div(a, constant(b)); }
  Value rem(Value a, int64_t b) const { return rem(a, constant(b)); }
  /// a < b, unsigned.
  Value less(Value a, Value b) const;
  Value less(Value a, int64_t b) const { return less(a, constant(b)); }
  Value both(Value a, Value b) const;
  Value min(Value a, Value b) const;

  /// Row-major coordinates of `linear` in `extents`.
  SmallVector<Value> delinearize(Value linear, ArrayRef<int64_t> extents) const;

private:
  OpBuilder &builder;
  Location loc;
};

/// The value of `index` where it is a constant.
std::optional<int64_t> constantIndex(Value index);

/// An index that lane l of a vector sees as `base + l * stride`. `divisor` is known to divide `base`, and all lanes are
/// known to be from `first` to `last`.
struct LaneIndex {
  Value base;
  int64_t stride = 0;
  int64_t divisor = 1;
  int64_t first = 0, last = std::numeric_limits<int64_t>::max();

  bool isUniform() const { return stride == 0; }
};

/// Evaluates `expr` over lane indices, or nothing where the lanes of the result are not evenly spaced.
std::optional<LaneIndex> evaluate(const IndexMath &math, AffineExpr expr, ArrayRef<LaneIndex> dims);

} // namespace mlir::megakernel

#endif
