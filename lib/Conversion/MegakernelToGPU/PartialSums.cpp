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
    numRuns = results / perRun;
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
  Value group() override { return unit->group(); }
  int64_t lanes() const override { return perRun; }
  int64_t depth() const override { return unit->depth(); }

  // Runs are dealt out along n, so that neighbouring threads touch neighbouring memory in the epilogue.
  SmallVector<std::pair<Value, Value>> resultPlaces() override {
    int64_t perRow = plan.sizeOf(plan.nLoop) / perRun;
    places.clear();
    for (int64_t first = 0; first < numRuns; first += context.threads) {
      Value run = math.add(context.thread, first);
      // Threads past the end stay inside of the tile; `hasResults` leaves them out.
      if (numRuns % context.threads != 0)
        run = math.min(run, math.constant(numRuns - 1));
      places.emplace_back(math.div(run, perRow), math.mul(math.rem(run, perRow), perRun));
    }
    return places;
  }

  Value hasResults(size_t index) override {
    int64_t first = index * context.threads;
    return numRuns < first + context.threads ? math.less(math.add(context.thread, first), numRuns) : Value();
  }

  LogicalResult meet(ValueRange accumulators) override {
    memory = context.sharedView(loc, {plan.layout.groups, plan.sizeOf(plan.mLoop), plan.partialsPitch()},
                                builder.getF32Type(), plan.sharedOffset + plan.sumsOffset());
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

  Value resultValues(ValueRange accumulators, size_t index) override {
    ElementEmitter emitter(builder, TileOp(), perRun);
    Value total;
    for (int64_t group = 0; group < plan.layout.groups; ++group) {
      LaneIndex along{places[index].second, perRun > 1 ? 1 : 0, perRun};
      Value part = emitter.load(loc, memory, {LaneIndex{math.constant(group)}, LaneIndex{places[index].first}, along});
      total = total ? arith::AddFOp::create(builder, loc, total, part).getResult() : part;
    }
    return total;
  }

private:
  const CtaContext &context;
  const ContractionPlan &plan;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  std::unique_ptr<MultiplyUnit> unit;
  int64_t perRun, numRuns;
  SmallVector<std::pair<Value, Value>> unitPlaces, places;
  Value memory;
};
} // namespace

std::unique_ptr<MultiplyUnit> mlir::megakernel::createPartialSums(const CtaContext &context,
                                                                  const ContractionPlan &plan,
                                                                  std::unique_ptr<MultiplyUnit> unit) {
  return std::make_unique<PartialSums>(context, plan, std::move(unit));
}
