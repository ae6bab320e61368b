//===- Reduction.cpp - tiles with a reduction that is no contraction ------===//
//
// The threads of a CTA form a grid of outputs by partial sums. Each thread reduces every G-th element of its output,
// the partial results of an output meet in shared memory, and one thread computes the epilogue.
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToGPU/CtaContext.h"

#include "lib/Conversion/Common/Combiner.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::megakernel;
using linalg::GenericOp;

namespace {
class ReductionEmitter {
public:
  ReductionEmitter(const CtaContext &context, TileDomain &domain)
      : context(context), domain(domain), op(domain.region.reduction), builder(context.builder), loc(op.getLoc()),
        math(builder, loc) {}

  LogicalResult run();

private:
  void splitThreads();
  FailureOr<SmallVector<Value>> reduceOwnPart(ArrayRef<LaneIndex> outputs);
  SmallVector<Value> combineParts(ValueRange partials);
  SmallVector<LaneIndex> loopsAt(ArrayRef<LaneIndex> outputs, Value reduced);
  LogicalResult finish(ArrayRef<LaneIndex> outputs, ValueRange totals);

  const CtaContext &context;
  TileDomain &domain;
  GenericOp op;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  Combiners combiners;
  int64_t reducedElements = 1, outputsPerTile = 1;
  /// Threads per output, and this thread's output and part.
  int64_t parts = 1;
  Value output, part;
  SmallVector<int64_t> scratchShape;
};
} // namespace

// Lanes of a warp lie along whatever is contiguous in memory: the reduction, or the outputs.
void ReductionEmitter::splitThreads() {
  for (int64_t extent : domain.region.reductionShape)
    reducedElements *= extent;
  for (int64_t size : domain.sizes)
    outputsPerTile *= size;
  int64_t slots = llvm::PowerOf2Ceil(outputsPerTile);
  parts = std::max<int64_t>(1, context.threads / slots);
  while (parts > 1 && parts / 2 >= reducedElements)
    parts /= 2;
  bool reducesContiguous = op.getNumDpsInputs() == 0 || llvm::is_contained(domain.region.reductionLoops,
                                                                         contiguousLoop(op, op.getDpsInputOperand(0)));
  output = reducesContiguous ? math.div(context.thread, parts) : math.rem(context.thread, slots);
  part = reducesContiguous ? math.rem(context.thread, parts) : math.div(context.thread, slots);
  // One place for each thread, also for those that only repeat others' work.
  int64_t columns = reducesContiguous ? context.threads / parts : slots;
  scratchShape = {context.threads / columns, columns};
}

SmallVector<LaneIndex> ReductionEmitter::loopsAt(ArrayRef<LaneIndex> outputs, Value reduced) {
  SmallVector<LaneIndex> loops(op.getNumLoops());
  for (auto [loop, index] : llvm::zip(domain.region.parallelLoops, outputs))
    loops[loop] = index;
  SmallVector<Value> coordinates = math.delinearize(reduced, domain.region.reductionShape);
  for (auto [loop, coordinate] : llvm::zip(domain.region.reductionLoops, coordinates))
    loops[loop] = {coordinate, 0, 1};
  return loops;
}

FailureOr<SmallVector<Value>> ReductionEmitter::reduceOwnPart(ArrayRef<LaneIndex> outputs) {
  SmallVector<Value> initial = combiners.initial(builder, loc, 1);
  auto loop = scf::ForOp::create(builder, loc, part, math.constant(reducedElements), math.constant(parts), initial);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  SmallVector<LaneIndex> loops = loopsAt(outputs, loop.getInductionVar());
  ElementEmitter emitter(builder, domain.tile, 1);
  SmallVector<Value> next;
  for (unsigned i = 0, e = op->getNumResults(); i < e; ++i) {
    next.push_back(emitter.emitBody(op, loops, loop.getRegionIterArg(i), i));
    if (!next.back())
      return failure();
  }
  scf::YieldOp::create(builder, loc, next);
  return SmallVector<Value>(loop.getResults());
}

// A tree over the parts of each output; part 0 ends with the total.
SmallVector<Value> ReductionEmitter::combineParts(ValueRange partials) {
  SmallVector<Value> totals(partials);
  if (parts == 1)
    return totals;
  SmallVector<Value> scratch;
  for (auto [index, partial] : llvm::enumerate(partials))
    scratch.push_back(context.sharedView(loc, scratchShape, partial.getType(), index * context.threads * 8));
  for (int64_t half = parts / 2; half >= 1; half /= 2) {
    for (auto [total, memory] : llvm::zip(totals, scratch))
      memref::StoreOp::create(builder, loc, total, memory, ValueRange{part, output});
    context.barrier(loc);
    // Every thread reads within bounds; what parts beyond the half compute is never used.
    Value other = math.rem(math.add(part, half), parts);
    for (auto [index, memory] : llvm::enumerate(scratch)) {
      Value value = memref::LoadOp::create(builder, loc, memory, ValueRange{other, output});
      totals[index] = combiners.combine(builder, loc, index, totals[index], value);
    }
    context.barrier(loc);
  }
  return totals;
}

LogicalResult ReductionEmitter::finish(ArrayRef<LaneIndex> outputs, ValueRange totals) {
  ElementEmitter emitter(builder, domain.tile, 1);
  for (unsigned i = 0, e = op->getNumResults(); i < e; ++i) {
    Value init = emitter.emit(op.getDpsInits()[i], outputs);
    if (!init)
      return failure();
    emitter.bind(op->getResult(i), combiners.combine(builder, loc, i, init, totals[i]));
  }
  return emitResults(emitter, domain, outputs);
}

LogicalResult ReductionEmitter::run() {
  FailureOr<Combiners> found = Combiners::get(op);
  if (failed(found))
    return failure();
  combiners = *found;
  splitThreads();
  return context.forEachTile(domain, [&](ArrayRef<LaneIndex> origin) -> LogicalResult {
    SmallVector<LaneIndex> outputs;
    // Threads past the tile or the domain compute the last output again, so that all reach the barriers.
    Value local = math.min(output, math.constant(outputsPerTile - 1));
    SmallVector<Value> coordinates = math.delinearize(local, domain.sizes);
    for (auto [dim, start] : llvm::enumerate(origin)) {
      Value index = math.add(start.base, coordinates[dim]);
      if (domain.isPartial(dim))
        index = math.min(index, math.constant(domain.shape()[dim] - 1));
      outputs.push_back({index, 0, 1});
    }
    FailureOr<SmallVector<Value>> partials = reduceOwnPart(outputs);
    if (failed(partials))
      return failure();
    SmallVector<Value> totals = combineParts(*partials);
    Value isFirst = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, part, math.constant(0));
    // Whoever computed an output again must not write it: its epilogue may read what the first one wrote.
    Value isOwner = math.both(isFirst, math.less(output, outputsPerTile));
    for (auto [dim, start] : llvm::enumerate(origin))
      if (domain.isPartial(dim))
        isOwner = math.both(isOwner, math.less(math.add(start.base, math.delinearize(output, domain.sizes)[dim]),
                                               domain.shape()[dim]));
    return context.when(loc, isOwner, [&] { return finish(outputs, totals); });
  });
}

LogicalResult mlir::megakernel::emitReduction(const CtaContext &context, TileDomain &domain) {
  return ReductionEmitter(context, domain).run();
}
