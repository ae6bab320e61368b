//===- Reduction.cpp - tiles with a reduction that is no contraction ------===//
//
// Where the reduction runs along contiguous memory, one output at a time with partial results in the lanes of a wide
// vector; elsewhere a vector of outputs at a time.
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToCPU/WorkerContext.h"

#include "lib/Conversion/Common/CarriedLoop.h"
#include "lib/Conversion/Common/Combiner.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::megakernel;
using linalg::GenericOp;

namespace {
class ReductionEmitter {
public:
  ReductionEmitter(const WorkerContext &context, TileDomain &domain)
      : context(context), domain(domain), op(domain.region.reduction), builder(context.builder), loc(op.getLoc()),
        math(builder, loc) {}

  LogicalResult run() {
    FailureOr<Combiners> found = Combiners::get(op);
    if (failed(found))
      return failure();
    combiners = *found;
    bool alongReduction =
        op.getNumDpsInputs() == 0 || domain.region.parallelLoops.empty() ||
        llvm::is_contained(domain.region.reductionLoops, contiguousLoop(op, op.getDpsInputOperand(0)));
    return context.forEachTile(domain, [&](ArrayRef<LaneIndex> origin) {
      return context.forEachElement(domain, origin, [&](ArrayRef<LaneIndex> outputs, int64_t lanes) {
        return alongReduction ? eachLane(outputs, lanes) : reduceVector(outputs, lanes);
      });
    });
  }

private:
  // A vector of outputs, each reduced in its own lane.
  LogicalResult reduceVector(ArrayRef<LaneIndex> outputs, int64_t lanes) {
    FailureOr<SmallVector<Value>> totals = reduce(outputs, lanes, 0, {}, combiners.initial(builder, loc, lanes));
    return failed(totals) ? failure() : finish(outputs, lanes, *totals);
  }

  // One output after the other, where the walk over outputs came in vectors.
  LogicalResult eachLane(ArrayRef<LaneIndex> outputs, int64_t lanes) {
    return context.forEach(loc, {math.constant(lanes), lanes}, [&](Value lane) {
      SmallVector<LaneIndex> own(outputs);
      if (lanes > 1)
        own.back() = {math.add(own.back().base, lane), 0, 1};
      return reduceOne(own);
    });
  }

  LogicalResult reduceOne(ArrayRef<LaneIndex> outputs) {
    // Several registers' worth of lanes keep the adders busy and the rounding error of long sums small.
    int64_t innermost = domain.region.reductionShape.back(), lanes = 4 * context.lanes;
    while (lanes > 1 && lanes > innermost)
      lanes /= 2;
    vectorizedInner = lanes;
    FailureOr<SmallVector<Value>> partials = reduce(outputs, lanes, 0, {}, combiners.initial(builder, loc, lanes));
    if (failed(partials))
      return failure();
    SmallVector<Value> totals;
    for (auto [index, partial] : llvm::enumerate(*partials))
      totals.push_back(combiners.combineLanes(builder, loc, index, partial));
    if (innermost % lanes != 0) {
      restOfInner = lanes;
      FailureOr<SmallVector<Value>> rest = reduce(outputs, 1, 0, {}, combiners.initial(builder, loc, 1));
      restOfInner = 0;
      if (failed(rest))
        return failure();
      for (auto [index, value] : llvm::enumerate(*rest))
        totals[index] = combiners.combine(builder, loc, index, totals[index], value);
    }
    vectorizedInner = 1;
    return finish(outputs, 1, totals);
  }

  // Loops over the reduction dimensions from `dim` inwards, carrying the accumulators.
  FailureOr<SmallVector<Value>> reduce(ArrayRef<LaneIndex> outputs, int64_t lanes, size_t dim,
                                       ArrayRef<LaneIndex> reduced, ValueRange accumulators) {
    if (dim == domain.region.reductionShape.size())
      return step(outputs, lanes, reduced, accumulators);
    int64_t extent = domain.region.reductionShape[dim], first = 0, stepSize = 1;
    bool isInnermost = dim + 1 == domain.region.reductionShape.size();
    bool isVector = isInnermost && vectorizedInner > 1 && lanes > 1;
    if (isVector) {
      stepSize = vectorizedInner;
      extent = extent / stepSize * stepSize;
    } else if (isInnermost && restOfInner > 1) {
      first = extent / restOfInner * restOfInner;
    }
    auto reduceAt = [&](Value index, ValueRange carried) {
      SmallVector<LaneIndex> next(reduced);
      next.push_back({index, isVector ? 1 : 0, isVector ? stepSize : 1});
      return reduce(outputs, lanes, dim + 1, next, carried);
    };
    int64_t count = llvm::divideCeil(extent - first, stepSize);
    return combiners.combineInBlocks(builder, loc, count, accumulators, [&](Value term, int64_t length) {
      Value start = math.add(math.mul(term, stepSize), first);
      return carryThrough(builder, loc, {start, math.add(start, length * stepSize), stepSize},
                          combiners.initial(builder, loc, lanes), reduceAt);
    });
  }

  FailureOr<SmallVector<Value>> step(ArrayRef<LaneIndex> outputs, int64_t lanes, ArrayRef<LaneIndex> reduced,
                                     ValueRange accumulators) {
    SmallVector<LaneIndex> loops(op.getNumLoops());
    for (auto [loop, index] : llvm::zip(domain.region.parallelLoops, outputs))
      loops[loop] = index;
    for (auto [loop, index] : llvm::zip(domain.region.reductionLoops, reduced))
      loops[loop] = index;
    ElementEmitter emitter = context.emitter(domain.tile, lanes);
    SmallVector<Value> next;
    for (auto [index, accumulator] : llvm::enumerate(accumulators)) {
      next.push_back(emitter.emitBody(op, loops, accumulator, index));
      if (!next.back())
        return failure();
    }
    return next;
  }

  LogicalResult finish(ArrayRef<LaneIndex> outputs, int64_t lanes, ArrayRef<Value> totals) {
    ElementEmitter emitter = context.emitter(domain.tile, lanes);
    for (auto [index, total] : llvm::enumerate(totals)) {
      Value init = emitter.emit(op.getDpsInits()[index], outputs);
      if (!init)
        return failure();
      emitter.bind(op->getResult(index), combiners.combine(builder, loc, index, init, total));
    }
    return emitResults(emitter, domain, outputs);
  }

  const WorkerContext &context;
  TileDomain &domain;
  GenericOp op;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  Combiners combiners;
  int64_t vectorizedInner = 1, restOfInner = 0;
};
} // namespace

LogicalResult mlir::megakernel::emitReduction(const WorkerContext &context, TileDomain &domain) {
  return ReductionEmitter(context, domain).run();
}
