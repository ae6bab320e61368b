//===- WorkerContext.h - what code of one CPU worker needs to know -*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOCPU_WORKERCONTEXT_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOCPU_WORKERCONTEXT_H

#include "lib/Conversion/Common/TileDomain.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::megakernel {

/// A half-open range of one loop, and whether its length is known to be a multiple of something.
struct LoopRange {
  Value end;
  /// The length where it is known, else 0.
  int64_t staticLength = 0;
};

struct WorkerContext {
  OpBuilder &builder;
  Value worker, numWorkers, poolContext, barrierFunction;
  Value workspace, scratch;
  /// float32 elements of a vector register.
  int64_t lanes;

  IndexMath math(Location loc) const { return IndexMath(builder, loc); }
  /// The caller's tensors are only aligned to their elements.
  ElementEmitter emitter(TileOp tile, int64_t lanes) const { return {builder, tile, lanes, /*alignment=*/1}; }
  Value scratchView(Location loc, ArrayRef<int64_t> shape, Type element, int64_t byteOffset) const;
  void barrier(Location loc) const;
  LogicalResult forEachTile(const TileDomain &domain,
                            function_ref<LogicalResult(ArrayRef<LaneIndex> origin)> body) const;
  /// Counts from 0 to the range's end in steps of one.
  LogicalResult forEach(Location loc, LoopRange range, function_ref<LogicalResult(Value index)> body) const;
  /// Counts in steps of `lanes`, then the rest one by one. `body` gets the index and how many lanes it stands for.
  LogicalResult forEachVector(Location loc, LoopRange range, int64_t lanes,
                              function_ref<LogicalResult(Value index, int64_t lanes)> body) const;
  /// How much of a tile of `size` elements that starts at `start` lies inside of `extent`.
  LoopRange clip(Location loc, Value start, int64_t size, int64_t extent) const;
  /// Runs `body` at each element of a tile, in vectors along the last dimension.
  LogicalResult forEachElement(const TileDomain &domain, ArrayRef<LaneIndex> origin,
                               function_ref<LogicalResult(ArrayRef<LaneIndex> indices, int64_t lanes)> body) const;
};

/// Scratch that a tile op needs, in bytes.
int64_t scratchBytesOf(const TileDomain &domain);

/// Replaces bfloat16 by 16-bit integers in a lowered worker function.
void lowerBFloat16(func::FuncOp function);

/// Calls the C library for the functions that MLIR would approximate.
LogicalResult lowerMathNearZero(ModuleOp module);

LogicalResult emitPointwise(const WorkerContext &context, TileDomain &domain);
LogicalResult emitReduction(const WorkerContext &context, TileDomain &domain);
LogicalResult emitContraction(const WorkerContext &context, TileDomain &domain);

} // namespace mlir::megakernel

#endif
