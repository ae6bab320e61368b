//===- Combiner.h - how partial results of a reduction meet -----*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_COMBINER_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_COMBINER_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::megakernel {

/// The associative op of each result of a reduction, with its neutral element.
class Combiners {
public:
  /// Fails, after reporting, where a result is not reduced by a single associative op.
  static FailureOr<Combiners> get(linalg::GenericOp op);

  unsigned size() const { return ops.size(); }
  /// Neutral elements: scalars with one lane, else vectors.
  SmallVector<Value> initial(OpBuilder &builder, Location loc, int64_t lanes) const;
  /// Combines two partial results of result `index`, scalars or vectors.
  Value combine(OpBuilder &builder, Location loc, unsigned index, Value a, Value b) const;
  /// Combines `count` terms with `totals`, which may be of several sets of results, in blocks (`accumulationBlock`):
  /// the rounding error grows with the length of a chain of additions. `reduce` gives the partial results of the
  /// `length` terms from `first` on.
  FailureOr<SmallVector<Value>>
  combineInBlocks(OpBuilder &builder, Location loc, int64_t count, ValueRange totals,
                  function_ref<FailureOr<SmallVector<Value>>(Value first, int64_t length)> reduce) const;
  /// Combines all lanes of a vector (of a power of two lanes) to a scalar.
  Value combineLanes(OpBuilder &builder, Location loc, unsigned index, Value vector) const;

private:
  SmallVector<Operation *> ops;
  SmallVector<TypedAttr> identities;
};

} // namespace mlir::megakernel

#endif
