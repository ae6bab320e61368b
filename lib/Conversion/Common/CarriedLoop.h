//===- CarriedLoop.h - loops that carry values ------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_CARRIEDLOOP_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_CARRIEDLOOP_H

#include "mlir/IR/Builders.h"

namespace mlir::megakernel {

/// What an iteration makes of the values that the one before left.
using CarriedBody = function_ref<FailureOr<SmallVector<Value>>(Value index, ValueRange carried)>;

struct CarriedRange {
  Value first, end;
  int64_t step;
};

/// Emits a loop over a range; returns what its last iteration left.
FailureOr<SmallVector<Value>> carryThrough(OpBuilder &builder, Location loc, CarriedRange range, ValueRange initial,
                                           CarriedBody body);

/// The same over 0, ..., count - 1; one iteration needs no loop.
FailureOr<SmallVector<Value>> carryThrough(OpBuilder &builder, Location loc, int64_t count, ValueRange initial,
                                           CarriedBody body);

/// Of how many of `count` terms in a row a sum of its own is made, so that no value goes through a long chain of
/// additions: its rounding error grows with the length.
int64_t accumulationBlock(int64_t count);

} // namespace mlir::megakernel

#endif
