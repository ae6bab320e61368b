//===- FusedRegion.h - what a fused region computes -------------*- C++ -*-===//
//
// `megakernel.fused` and `megakernel.tile` hold the same kind of region. This file says what such a region may
// hold, and finds its parts: the reduction (if any), the parallel domain, the yielded values.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_DIALECTS_MEGAKERNEL_FUSEDREGION_H
#define TRAINKERNEL_DIALECTS_MEGAKERNEL_FUSEDREGION_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::megakernel {

/// The parts of a verified fused region.
struct FusedRegion {
  /// The only op with reduction iterators, or null.
  linalg::GenericOp reduction;
  /// The shape of every result: the domain over which tiles are cut.
  SmallVector<int64_t> parallelShape;
  /// Extents of the reduction dimensions, in the order of the reduction's iterators.
  SmallVector<int64_t> reductionShape;
  /// For each parallel dimension, the loop of `reduction` that it is.
  SmallVector<unsigned> parallelLoops;
  /// The loops of `reduction` that reduce.
  SmallVector<unsigned> reductionLoops;
  SmallVector<Value> yielded;

  /// Takes a region apart. The region must be verified.
  static FusedRegion get(Region &region);
  /// True where the reduction is a matrix product (batched or not) of floats that accumulates in f32. Products with a
  /// vector are ordinary reductions.
  bool isContraction();
};

/// Checks F2, F3 and F4; reports at the op at fault.
LogicalResult verifyFusedRegion(Operation *op, Region &region);

/// The tensors that the bodies of `op` read at places that they compute, with `tensor.extract`: they are no operands,
/// and any of their elements may be read.
SmallVector<Value> extractedTensors(Operation *op);

/// All values from outside that `op` reads: its operands and what its bodies extract from.
SmallVector<Value> valuesRead(Operation *op);

/// True where `op` has reduction iterators.
bool isReduction(linalg::GenericOp op);

} // namespace mlir::megakernel

#endif
