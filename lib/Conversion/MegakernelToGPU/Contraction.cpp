//===- Contraction.cpp - matrix products on a CTA -------------------------===//

#include "lib/Conversion/MegakernelToGPU/Contraction.h"

#include "lib/Analysis/Sources.h"
#include "lib/Analysis/TileChoice.h"
#include "lib/Conversion/Common/CarriedLoop.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
class ContractionEmitter : public TileEmitter {
public:
  ContractionEmitter(const CtaContext &context, TileDomain &domain, int64_t sharedOffset, bool isLastUse)
      : context(context), domain(domain), isAlone(isLastUse && domain.numTiles <= context.grid),
        plan(planAt(domain, context.threads, sharedOffset)), builder(context.builder), loc(plan.op->getLoc()),
        math(builder, loc), unit(createUnit(context, plan)), product(context, domain, plan, *unit, isAlone) {}

  LogicalResult prefetch(int64_t &registerBytes) override {
    // A CTA with several tiles would overwrite what is prefetched before it is used.
    if (domain.numTiles > context.grid)
      return success();
    if (!isAllPrefetched())
      return prefetchInputs(registerBytes);
    if (isRolled())
      return multiplyAhead();
    return canRunAhead(registerBytes) ? runAhead(registerBytes) : prefetchInputs(registerBytes);
  }

  LogicalResult run() override {
    std::string fault = unit->check();
    if (!fault.empty())
      return domain.tile->emitError() << "tile sizes do not fit: " << fault;
    return context.forEachTile(domain, [&](ArrayRef<LaneIndex> origin) -> LogicalResult {
      if (isRolled())
        return runRolled(origin);
      locateResults(origin);
      if (ranAhead)
        return writeAhead();
      loadAhead();
      FailureOr<SmallVector<Value>> accumulators = multiplyTile(origin);
      return failed(accumulators) ? failure() : finish(*accumulators);
    });
  }

private:
  /// About half of a thread's registers.
  static constexpr int64_t maxEpilogueBytes = 384;

  // Where all that a tile is computed from is there, so are its results; but nothing may be written yet.
  bool canRunAhead(int64_t registerBytes) { return countAtOnce() == 0 && resultBytes() <= registerBytes; }
  bool isAllPrefetched() {
    return unit->check().empty() && !plan.rowsAt && !plan.keptAt &&
           llvm::all_of(domain.tile.getBody().getArguments(), [&](Value input) { return isPrefetched(input); });
  }

  // Code that runs once takes longer to fetch than to run: where the epilogue is long, a loop goes through the results.
  bool isRolled() {
    constexpr int64_t longCode = 400;
    return unit->numRuns() > 1 && perThread(epilogueWork(domain.region)) >= longCode;
  }

  // The sums stay in shared memory.
  LogicalResult multiplyAhead() {
    ranAhead = true;
    CtaContext::Values loaded =
        context.valuesOfTile(domain, [&](ArrayRef<LaneIndex> origin) { return startRolled(origin); });
    if (succeeded(loaded))
      ahead = *loaded;
    return success(succeeded(loaded));
  }

  // Computes the sums; returns what the epilogue of the first results reads.
  CtaContext::Values startRolled(ArrayRef<LaneIndex> origin) {
    initial = unit->initialAccumulators();
    SmallVector<Value> loaded = loadRun(origin, math.constant(0));
    if (failed(multiplyTile(origin)))
      return failure();
    return loaded;
  }

  SmallVector<Value> loadRun(ArrayRef<LaneIndex> origin, Value run) {
    Result result = resultAt(origin, unit->placeOf(run));
    return loadSide(result);
  }

  // While a run of results is computed, what the next one reads is on its way.
  LogicalResult runRolled(ArrayRef<LaneIndex> origin) {
    CtaContext::Values loaded = ranAhead ? CtaContext::Values(ahead) : startRolled(origin);
    if (failed(loaded))
      return failure();
    Value last = math.constant(unit->numRuns() - 1);
    auto finishRun = [&](Value run, ValueRange carried) -> CtaContext::Values {
      SmallVector<Value> next = loadRun(origin, math.min(math.add(run, 1), last));
      Result result = resultAt(origin, unit->placeOf(run));
      SmallVector<Value> own(carried);
      ArrayRef<Value> rest = own;
      useSide(result, rest);
      Value isOwn = math.both(unit->hasRun(run), result.inBounds);
      if (failed(context.when(loc, isOwn, [&] { return finishResult(result, unit->valuesOf(run)); })))
        return failure();
      return next;
    };
    if (failed(carryThrough(builder, loc, unit->numRuns(), *loaded, finishRun)))
      return failure();
    leaveTile();
    return success();
  }

  int64_t perThread(int64_t bytesOfResult) {
    return llvm::divideCeil(plan.sizeOf(plan.mLoop) * plan.sizeOf(plan.nLoop), context.threads) * bytesOfResult;
  }
  int64_t resultBytes() {
    int64_t bytes = 0;
    for (Value yielded : domain.region.yielded)
      bytes += bytesPerElement(yielded);
    return perThread(bytes);
  }

  LogicalResult runAhead(int64_t &registerBytes) {
    ranAhead = true;
    registerBytes -= resultBytes();
    CtaContext::Values values = context.valuesOfTile(domain, [&](ArrayRef<LaneIndex> origin) -> CtaContext::Values {
      locateResults(origin);
      loadAhead();
      FailureOr<SmallVector<Value>> accumulators = multiplyTile(origin);
      if (failed(accumulators))
        return failure();
      SmallVector<Value> computed;
      for (auto [index, result] : llvm::enumerate(results)) {
        CtaContext::Values own = context.valuesWhen(
            loc, holds(index), [&] { return resultsOf(result, unit->resultValues(*accumulators, index)); });
        if (failed(own))
          return failure();
        llvm::append_range(computed, *own);
      }
      leaveTile();
      return computed;
    });
    if (failed(values))
      return failure();
    ahead = *values;
    return success();
  }

  LogicalResult writeAhead() {
    ArrayRef<Value> rest = ahead;
    for (auto [index, result] : llvm::enumerate(results)) {
      ValueRange own = rest.take_front(domain.region.yielded.size());
      rest = rest.drop_front(own.size());
      (void)context.when(loc, holds(index), [&] {
        writeResults(*result.emitter, domain, result.indices, own);
        return success();
      });
    }
    return success();
  }

  LogicalResult prefetchInputs(int64_t &registerBytes) {
    CtaContext::Values values = context.valuesOfTile(domain, [&](ArrayRef<LaneIndex> origin) -> CtaContext::Values {
      if (failed(product.stageFirst(origin, isPrefetched(plan.aOperand->get()), isPrefetched(plan.bOperand->get()))))
        return failure();
      locateResults(origin);
      SmallVector<Value> loaded;
      if (countAtOnce() > 0 || perThread(epilogueBytes(domain.region)) > registerBytes)
        return loaded;
      for (Result &result : results)
        llvm::append_range(loaded, loadSide(result, [&](BlockArgument input) { return isPrefetched(input); }));
      return loaded;
    });
    if (failed(values))
      return failure();
    ahead = *values;
    if (!ahead.empty())
      registerBytes -= perThread(epilogueBytes(domain.region));
    return success();
  }

  static ContractionPlan planAt(const TileDomain &domain, int64_t threads, int64_t sharedOffset) {
    ContractionPlan plan(domain, threads);
    if (!plan.rowsAt)
      plan.a.byteOffset += sharedOffset;
    if (!plan.keptAt)
      plan.b.byteOffset += sharedOffset;
    plan.sharedOffset += sharedOffset;
    return plan;
  }

  // All inputs that a value of the region is computed from may be read early.
  bool isPrefetched(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return domain.tile.isPrefetched(argument.getArgNumber());
    return llvm::all_of(valuesRead(value.getDefiningOp()), [&](Value operand) { return isPrefetched(operand); });
  }

  static std::unique_ptr<MultiplyUnit> createUnit(const CtaContext &context, const ContractionPlan &plan) {
    auto create = plan.layout.byWarpgroups                             ? createWarpgroupUnit
                  : plan.multiplier == trainkernel::Multiplier::Narrow ? createMatrixUnit
                  : plan.multiplier == trainkernel::Multiplier::Tf32x3 ? createSplitTf32
                                                                       : createThreadFma;
    std::unique_ptr<MultiplyUnit> unit = create(context, plan);
    return plan.layout.meets ? createPartialSums(context, plan, std::move(unit)) : std::move(unit);
  }

  /// A run of results that this thread holds, and the emitter of its epilogue.
  struct Result {
    SmallVector<LaneIndex> indices;
    Value inBounds;
    std::unique_ptr<ElementEmitter> emitter;
  };

  FailureOr<SmallVector<Value>> multiplyTile(ArrayRef<LaneIndex> origin) {
    FailureOr<SmallVector<Value>> accumulators = product.multiply(origin, initial);
    if (failed(accumulators) || failed(unit->meet(*accumulators)))
      return failure();
    return accumulators;
  }

  // The next tile's operands take the place of the sums.
  void leaveTile() {
    if (plan.layout.meets && !isAlone)
      context.barrier(loc);
  }

  // Where the results are.
  void locateResults(ArrayRef<LaneIndex> origin) {
    initial = unit->initialAccumulators();
    results.clear();
    for (std::pair<Value, Value> place : unit->resultPlaces())
      results.push_back(resultAt(origin, place));
  }

  Result resultAt(ArrayRef<LaneIndex> origin, std::pair<Value, Value> place) {
    int64_t lanes = unit->lanes();
    auto [m, n] = place;
    Result result;
    for (auto [loop, start] : llvm::zip(domain.region.parallelLoops, origin)) {
      if (loop == plan.mLoop)
        result.indices.push_back({math.add(start.base, m), 0, 1});
      else if (loop == plan.nLoop)
        result.indices.push_back({math.add(start.base, n), lanes > 1 ? 1 : 0, std::gcd(lanes, start.divisor)});
      else
        result.indices.push_back(start);
    }
    result.inBounds = domain.inBounds(math, result.indices);
    // Sums that meet are dealt out within the tile.
    if (plan.rows < plan.sizeOf(plan.mLoop) && !plan.layout.meets)
      result.inBounds = math.both(result.inBounds, math.less(m, plan.rows));
    result.emitter = std::make_unique<ElementEmitter>(builder, domain.tile, lanes);
    return result;
  }

  // What a thread's results read and write is on its way for so many of them at once; 0 for all, ahead of the product,
  // where it fits registers beside it.
  int64_t countAtOnce() {
    int64_t perRun = unit->lanes() * epilogueBytes(domain.region);
    int64_t atOnce = std::max<int64_t>(1, maxEpilogueBytes / perRun);
    return perThread(1) / unit->lanes() <= atOnce ? 0 : atOnce;
  }

  // What was loaded before the barrier, and the rest of what goes ahead of the product.
  void loadAhead() {
    ArrayRef<Value> rest = ahead;
    for (Result &result : results)
      if (!ahead.empty())
        useSide(result, rest, [&](BlockArgument input) { return isPrefetched(input); });
    if (countAtOnce() == 0)
      loadSideOperands(0, results.size());
  }

  void loadSideOperands(size_t first, size_t count) {
    for (Result &result : MutableArrayRef<Result>(results).slice(first, count))
      loadSide(result);
  }

  // Loads what the epilogue reads for a run of results, but not where a bound has to be tested first.
  SmallVector<Value> loadSide(Result &result, ElementEmitter::Wanted wants = nullptr) {
    SmallVector<Value> loaded;
    if (!result.inBounds)
      for (Value yielded : domain.region.yielded)
        llvm::append_range(loaded, result.emitter->preload(yielded, result.indices, wants));
    return loaded;
  }

  // Lets the epilogue use what `loadSide` loaded elsewhere, from the front of `loaded`.
  void useSide(Result &result, ArrayRef<Value> &loaded, ElementEmitter::Wanted wants = nullptr) {
    if (!result.inBounds)
      for (Value yielded : domain.region.yielded)
        result.emitter->useLoaded(yielded, result.indices, loaded, wants);
  }

  LogicalResult finish(ValueRange accumulators) {
    int64_t atOnce = countAtOnce();
    for (auto [index, result] : llvm::enumerate(results)) {
      if (atOnce > 0 && index % atOnce == 0)
        loadSideOperands(index, std::min<size_t>(atOnce, results.size() - index));
      LogicalResult finished = context.when(
          loc, holds(index), [&] { return finishResult(result, unit->resultValues(accumulators, index)); });
      if (failed(finished))
        return failure();
    }
    leaveTile();
    return success();
  }

  LogicalResult finishResult(Result &result, Value sums) {
    CtaContext::Values values = resultsOf(result, sums);
    if (failed(values))
      return failure();
    writeResults(*result.emitter, domain, result.indices, *values);
    return success();
  }

  // Where this thread has run `index` of the results; null where every thread has.
  Value holds(size_t index) { return math.both(unit->hasResults(index), results[index].inBounds); }

  CtaContext::Values resultsOf(Result &result, Value sums) {
    ElementEmitter &emitter = *result.emitter;
    Value init = emitter.emit(plan.op.getDpsInits()[0], result.indices);
    if (!init)
      return failure();
    // Adding the usual zero would cost an instruction per element and change nothing but the sign of a zero.
    if (!isZero(init))
      sums = arith::AddFOp::create(builder, loc, init, sums);
    emitter.bind(plan.op->getResult(0), sums);
    return computeResults(emitter, domain, result.indices);
  }

  static bool isZero(Value value) {
    if (auto broadcast = value.getDefiningOp<vector::BroadcastOp>())
      value = broadcast.getSource();
    return matchPattern(value, m_AnyZeroFloat());
  }

  const CtaContext &context;
  TileDomain &domain;
  /// Nothing else uses the shared memory before the CTA's threads meet at a barrier of the kernel.
  bool isAlone;
  ContractionPlan plan;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  std::unique_ptr<MultiplyUnit> unit;
  ChunkedProduct product;
  SmallVector<Value> initial;
  SmallVector<Result> results;
  /// What is there since before the barrier ahead of the phase: all results, or what their epilogue reads.
  bool ranAhead = false;
  SmallVector<Value> ahead;
};
} // namespace

std::unique_ptr<TileEmitter> mlir::megakernel::createContraction(const CtaContext &context, TileDomain &domain,
                                                                 int64_t sharedOffset, bool isLastUse) {
  return std::make_unique<ContractionEmitter>(context, domain, sharedOffset, isLastUse);
}
