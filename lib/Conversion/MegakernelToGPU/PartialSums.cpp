//===- PartialSums.cpp - groups of threads add up their parts of k --------===//
//
// A single group meets, too, where its results are better dealt out along n.
//

#include "lib/Conversion/MegakernelToGPU/Contraction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
class PartialSums : public MultiplyUnit {
public:
  PartialSums(const CtaContext &context, const ContractionPlan &plan, std::unique_ptr<MultiplyUnit> unit)
      : context(context), plan(plan), builder(context.builder), loc(plan.op->getLoc()), math(builder, loc),
        unit(std::move(unit)) {
    perRun = commonPowerOfTwo(4, {plan.extentOf(plan.nLoop), plan.sizeOf(plan.nLoop)});
    // All threads have results, where there are enough.
    int64_t results = plan.rows * plan.sizeOf(plan.nLoop);
    while (perRun > 1 && results / perRun < context.threads)
      perRun /= 2;
    allRuns = results / perRun;
  }

  std::string check() const override { return unit->check(); }
  SmallVector<Value> initialAccumulators() override {
    SmallVector<Value> initial = unit->initialAccumulators();
    unitPlaces = unit->resultPlaces();
    return initial;
  }
  SmallVector<Value> multiply(Value aTile, Value bTile, ValueRange accumulators) override {
    return unit->multiply(aTile, bTile, accumulators);
  }
  bool isAsynchronous() const override { return unit->isAsynchronous(); }
  SmallVector<Value> start(Value aTile, Value bTile, ValueRange accumulators) override {
    return unit->start(aTile, bTile, accumulators);
  }
  SmallVector<Value> finish(ValueRange accumulators) override { return unit->finish(accumulators); }
  void publishTiles() override { unit->publishTiles(); }
  Value group() override { return unit->group(); }
  int64_t lanes() const override { return perRun; }
  int64_t depth() const override { return unit->depth(); }

  // Runs are dealt out along n, so that neighbouring threads touch neighbouring memory in the epilogue.
  SmallVector<std::pair<Value, Value>> resultPlaces() override {
    SmallVector<std::pair<Value, Value>> places;
    for (int64_t run = 0; run < numRuns(); ++run)
      places.push_back(placeOf(math.constant(run)));
    return places;
  }

  int64_t numRuns() const override { return llvm::divideCeil(allRuns, context.threads); }

  std::pair<Value, Value> placeOf(Value run) override {
    int64_t perRow = plan.sizeOf(plan.nLoop) / perRun;
    Value own = numberOf(run);
    // Threads past the end stay inside of the tile; `hasRun` leaves them out.
    if (allRuns % context.threads != 0)
      own = math.min(own, math.constant(allRuns - 1));
    return {math.div(own, perRow), math.mul(math.rem(own, perRow), perRun)};
  }

  Value hasRun(Value run) override {
    return allRuns % context.threads != 0 ? math.less(numberOf(run), allRuns) : Value();
  }

  Value hasResults(size_t index) override {
    return static_cast<int64_t>(index + 1) == numRuns() ? hasRun(math.constant(index)) : Value();
  }

  LogicalResult meet(ValueRange accumulators) override {
    Value memory = sums();
    LogicalResult stored = context.when(loc, unit->hasResults(0), [&] {
      int64_t lanes = unit->lanes();
      ElementEmitter emitter(builder, TileOp(), lanes);
      for (auto [index, place] : llvm::enumerate(unitPlaces)) {
        LaneIndex along{place.second, lanes > 1 ? 1 : 0, lanes};
        emitter.store(loc, unit->resultValues(accumulators, index), memory,
                      {LaneIndex{unit->group()}, LaneIndex{place.first}, along});
      }
      return success();
    });
    context.barrier(loc);
    return stored;
  }

  Value resultValues(ValueRange accumulators, size_t index) override { return valuesOf(math.constant(index)); }

  Value valuesOf(Value run) override {
    ElementEmitter emitter(builder, TileOp(), perRun);
    Value memory = sums(), total;
    auto [m, n] = placeOf(run);
    for (int64_t group = 0; group < plan.layout.groups; ++group) {
      LaneIndex along{n, perRun > 1 ? 1 : 0, perRun};
      Value part = emitter.load(loc, memory, {LaneIndex{math.constant(group)}, LaneIndex{m}, along});
      total = total ? arith::AddFOp::create(builder, loc, total, part).getResult() : part;
    }
    return total;
  }

private:
  Value numberOf(Value run) { return math.add(context.thread, math.mul(run, context.threads)); }
  // Made again where it is needed, which may be in another block.
  Value sums() {
    return context.sharedView(loc, {plan.layout.groups, plan.sizeOf(plan.mLoop), plan.partialsPitch()},
                              builder.getF32Type(), plan.sharedOffset + plan.sumsOffset());
  }

  const CtaContext &context;
  const ContractionPlan &plan;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  std::unique_ptr<MultiplyUnit> unit;
  /// Results along n that follow each other, and how many of these runs the tile has.
  int64_t perRun, allRuns;
  SmallVector<std::pair<Value, Value>> unitPlaces;
};
} // namespace

std::unique_ptr<MultiplyUnit> mlir::megakernel::createPartialSums(const CtaContext &context,
                                                                  const ContractionPlan &plan,
                                                                  std::unique_ptr<MultiplyUnit> unit) {
  return std::make_unique<PartialSums>(context, plan, std::move(unit));
}
