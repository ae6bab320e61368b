//===- Reduction.cpp - tiles with a reduction that is no contraction ------===//
//
// The threads of a CTA form a grid of outputs by partial sums. Each thread reduces every G-th element of its output,
// the partial results of an output meet in shared memory, and one thread computes the epilogue.
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToGPU/CtaContext.h"

#include "lib/Analysis/Sources.h"
#include "lib/Conversion/Common/CarriedLoop.h"
#include "lib/Conversion/Common/Combiner.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::megakernel;
using linalg::GenericOp;

namespace {
class ReductionEmitter {
public:
  ReductionEmitter(const CtaContext &context, TileDomain &domain, int64_t sharedOffset, bool isLastUse)
      : context(context), domain(domain), sharedOffset(sharedOffset),
        isAlone(isLastUse && domain.numTiles <= context.grid), op(domain.region.reduction), builder(context.builder),
        loc(op.getLoc()), math(builder, loc) {}

  LogicalResult run();

private:
  void splitThreads();
  SmallVector<Value> initialSets();
  FailureOr<SmallVector<Value>> reduceRounds(ArrayRef<LaneIndex> outputs, Value first, int64_t count);
  FailureOr<SmallVector<Value>> reduceAllRounds(ArrayRef<LaneIndex> outputs, int64_t rounds);
  FailureOr<SmallVector<Value>> reduceOwnPart(ArrayRef<LaneIndex> outputs);
  void combineInWarp(SmallVector<Value> &totals);
  SmallVector<Value> combineParts(ValueRange partials);
  FailureOr<SmallVector<Value>> accumulate(ArrayRef<LaneIndex> outputs, Value item, ValueRange accumulators);
  SmallVector<LaneIndex> loopsAt(ArrayRef<LaneIndex> outputs, Value item);
  LogicalResult finish(ArrayRef<LaneIndex> outputs, ValueRange totals);

  const CtaContext &context;
  TileDomain &domain;
  int64_t sharedOffset;
  /// Nothing else uses the shared memory before the CTA's threads meet at a barrier of the kernel.
  bool isAlone;
  GenericOp op;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  Combiners combiners;
  /// `lanes` elements are read at a time where they lie side by side.
  int64_t reducedElements = 1, outputsPerTile = 1, lanes = 1;
  /// Threads per output, and this thread's output and part. Each part has several sets of accumulators.
  int64_t parts = 1, sets = 1;
  /// The part that this thread reduces: where there are more threads than parts, the others repeat one.
  Value reducedPart;
  /// True where the parts of an output are threads beside one another.
  bool partsAreNeighbours = false;
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
  partsAreNeighbours = op.getNumDpsInputs() == 0 ||
                       llvm::is_contained(domain.region.reductionLoops, contiguousLoop(op, op.getDpsInputOperand(0)));
  if (partsAreNeighbours && op.getNumDpsInputs() > 0 && !domain.region.reductionShape.empty()) {
    lanes = commonPowerOfTwo(16 / widestSourceBytes(op.getDpsInputs()[0]), {domain.region.reductionShape.back()});
  }
  parts = std::max<int64_t>(1, context.threads / slots);
  while (parts > 1 && parts / 2 >= reducedElements / lanes)
    parts /= 2;
  output = partsAreNeighbours ? math.div(context.thread, parts) : math.rem(context.thread, slots);
  part = partsAreNeighbours ? math.rem(context.thread, parts) : math.div(context.thread, slots);
  bool isRepeated = !partsAreNeighbours && parts * slots < context.threads;
  reducedPart = isRepeated ? math.rem(part, parts) : part;
  // One place for each thread, also for those that only repeat others' work.
  int64_t columns = partsAreNeighbours ? context.threads / parts : slots;
  scratchShape = {context.threads / columns, columns};
}

// Loop indices of one output and of `lanes` reduced elements from `item * lanes` on.
SmallVector<LaneIndex> ReductionEmitter::loopsAt(ArrayRef<LaneIndex> outputs, Value item) {
  SmallVector<LaneIndex> loops(op.getNumLoops());
  for (auto [loop, index] : llvm::zip(domain.region.parallelLoops, outputs))
    loops[loop] = index;
  SmallVector<int64_t> extents(domain.region.reductionShape);
  extents.back() /= lanes;
  SmallVector<Value> coordinates = math.delinearize(item, extents);
  for (auto [loop, coordinate] : llvm::zip(domain.region.reductionLoops, coordinates))
    loops[loop] = {coordinate, 0, 1};
  if (lanes > 1)
    loops[domain.region.reductionLoops.back()] = {math.mul(coordinates.back(), lanes), 1, lanes};
  return loops;
}

// Adds the elements of `item` to one set of accumulators.
FailureOr<SmallVector<Value>> ReductionEmitter::accumulate(ArrayRef<LaneIndex> outputs, Value item,
                                                           ValueRange accumulators) {
  SmallVector<LaneIndex> loops = loopsAt(outputs, item);
  ElementEmitter emitter(builder, domain.tile, lanes);
  SmallVector<Value> next;
  for (auto [index, accumulator] : llvm::enumerate(accumulators)) {
    next.push_back(emitter.emitBody(op, loops, accumulator, index));
    if (!next.back())
      return failure();
  }
  return next;
}

SmallVector<Value> ReductionEmitter::initialSets() {
  SmallVector<Value> initial;
  for (int64_t set = 0; set < sets; ++set)
    llvm::append_range(initial, combiners.initial(builder, loc, lanes));
  return initial;
}

// Runs over `count` rounds from round `first` on; in each the parts take an item for each set of accumulators. Returns
// the partial results of the sets.
FailureOr<SmallVector<Value>> ReductionEmitter::reduceRounds(ArrayRef<LaneIndex> outputs, Value first, int64_t count) {
  return carryThrough(builder, loc, count, initialSets(),
                      [&](Value round, ValueRange carried) -> FailureOr<SmallVector<Value>> {
                        Value start = math.add(math.mul(math.add(first, round), parts * sets), reducedPart);
                        SmallVector<Value> next;
                        for (int64_t set = 0; set < sets; ++set) {
                          auto own = carried.slice(set * combiners.size(), combiners.size());
                          FailureOr<SmallVector<Value>> added = accumulate(outputs, math.add(start, set * parts), own);
                          if (failed(added))
                            return failure();
                          llvm::append_range(next, *added);
                        }
                        return next;
                      });
}

// Sums of sums: the rounding error grows with the length of a chain of additions.
FailureOr<SmallVector<Value>> ReductionEmitter::reduceAllRounds(ArrayRef<LaneIndex> outputs, int64_t rounds) {
  if (accumulationBlock(rounds) == rounds)
    return reduceRounds(outputs, math.constant(0), rounds);
  return combiners.combineInBlocks(builder, loc, rounds, initialSets(),
                                   [&](Value first, int64_t count) { return reduceRounds(outputs, first, count); });
}

FailureOr<SmallVector<Value>> ReductionEmitter::reduceOwnPart(ArrayRef<LaneIndex> outputs) {
  int64_t items = reducedElements / lanes;
  // Several loads in flight, each with accumulators of its own.
  sets = 8;
  while (sets > 1 && sets * parts > items)
    sets /= 2;
  int64_t rounds = items / (sets * parts), done = rounds * sets * parts;
  FailureOr<SmallVector<Value>> partials = reduceAllRounds(outputs, rounds);
  if (failed(partials))
    return failure();
  SmallVector<Value> totals(ArrayRef<Value>(*partials).take_front(combiners.size()));
  for (auto [index, partial] : llvm::drop_begin(llvm::enumerate(*partials), combiners.size())) {
    Value &total = totals[index % combiners.size()];
    total = combiners.combine(builder, loc, index % combiners.size(), total, partial);
  }
  if (done < items) {
    FailureOr<SmallVector<Value>> all =
        carryThrough(builder, loc, {math.add(reducedPart, done), math.constant(items), parts}, totals,
                     [&](Value item, ValueRange carried) { return accumulate(outputs, item, carried); });
    if (failed(all))
      return failure();
    totals = *all;
  }
  for (auto [index, total] : llvm::enumerate(totals))
    total = combiners.combineLanes(builder, loc, index, total);
  return totals;
}

static constexpr int64_t warpSize = 32;

// Shuffles move 32 bits.
static bool mayShuffle(ValueRange values) {
  return llvm::all_of(values.getTypes(), [](Type type) { return type.isF32() || type.isInteger(32); });
}

// The parts of an output that lie in one warp: the first of them ends with their total. All lanes take part; the clamp
// cuts the warp into segments of `width` lanes, as the PTX manual says of shfl.sync.
void ReductionEmitter::combineInWarp(SmallVector<Value> &totals) {
  int64_t width = std::min(parts, warpSize);
  auto constant = [&](int32_t value) -> Value {
    return arith::ConstantOp::create(builder, loc, builder.getI32IntegerAttr(value));
  };
  Value allLanes = constant(-1), clamp = constant(((warpSize - width) << 8) | 31);
  for (int64_t offset = width / 2; offset >= 1; offset /= 2)
    for (auto [index, total] : llvm::enumerate(totals)) {
      Value other = NVVM::ShflOp::create(builder, loc, total.getType(), allLanes, total, constant(offset), clamp,
                                         NVVM::ShflKind::down, /*return_value_and_is_valid=*/UnitAttr());
      total = combiners.combine(builder, loc, index, total, other);
    }
}

// Part 0 of each output ends with the total. Parts beside one another meet in their warp, others in shared memory: down
// to a few in a tree, then one after the other.
SmallVector<Value> ReductionEmitter::combineParts(ValueRange partials) {
  constexpr int64_t few = 8;
  SmallVector<Value> totals(partials);
  int64_t left = parts;
  Value place = part;
  if (partsAreNeighbours && mayShuffle(partials)) {
    combineInWarp(totals);
    left = llvm::divideCeil(parts, warpSize);
    place = math.div(part, warpSize);
  }
  if (left == 1)
    return totals;
  SmallVector<Value> scratch;
  // A bool is a byte in memory.
  auto inMemory = [&](Type type) -> Type { return type.isInteger(1) ? builder.getI8Type() : type; };
  for (auto [index, partial] : llvm::enumerate(partials))
    scratch.push_back(
        context.sharedView(loc, scratchShape, inMemory(partial.getType()), sharedOffset + index * context.threads * 8));
  auto loadAt = [&](size_t index, Value from) -> Value {
    Value loaded = memref::LoadOp::create(builder, loc, scratch[index], ValueRange{from, output});
    Type type = totals[index].getType();
    return type == loaded.getType() ? loaded : arith::TruncIOp::create(builder, loc, type, loaded).getResult();
  };
  Value leads = left < parts ? arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, math.rem(part, warpSize),
                                                     math.constant(0))
                             : Value();
  auto publish = [&] {
    (void)context.when(loc, leads, [&] {
      for (auto [total, memory] : llvm::zip(totals, scratch)) {
        Type type = inMemory(total.getType());
        Value stored = type == total.getType() ? total : arith::ExtUIOp::create(builder, loc, type, total).getResult();
        memref::StoreOp::create(builder, loc, stored, memory, ValueRange{place, output});
      }
      return success();
    });
    context.barrier(loc);
  };
  for (; left > few; left /= 2) {
    publish();
    // Every thread reads within bounds; what parts beyond the half compute is never used.
    Value other = math.rem(math.add(place, left / 2), left);
    for (size_t index = 0; index < totals.size(); ++index)
      totals[index] = combiners.combine(builder, loc, index, totals[index], loadAt(index, other));
    context.barrier(loc);
  }
  publish();
  for (size_t index = 0; index < totals.size(); ++index) {
    totals[index] = loadAt(index, math.constant(0));
    for (int64_t from = 1; from < left; ++from)
      totals[index] = combiners.combine(builder, loc, index, totals[index], loadAt(index, math.constant(from)));
  }
  // The next tile's parts take the place of these.
  if (!isAlone)
    context.barrier(loc);
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
        isOwner = math.both(
            isOwner, math.less(math.add(start.base, math.delinearize(output, domain.sizes)[dim]), domain.shape()[dim]));
    return context.when(loc, isOwner, [&] { return finish(outputs, totals); });
  });
}

LogicalResult mlir::megakernel::emitReduction(const CtaContext &context, TileDomain &domain, int64_t sharedOffset,
                                              bool isLastUse) {
  return ReductionEmitter(context, domain, sharedOffset, isLastUse).run();
}
