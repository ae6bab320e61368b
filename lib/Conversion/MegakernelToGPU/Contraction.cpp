//===- Contraction.cpp - matrix products on a CTA -------------------------===//

#include "lib/Conversion/MegakernelToGPU/Contraction.h"

#include "lib/Conversion/Common/CarriedLoop.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
class ContractionEmitter : public TileEmitter {
public:
  ContractionEmitter(const CtaContext &context, TileDomain &domain, int64_t sharedOffset)
      : context(context), domain(domain), plan(planAt(domain, context.threads, sharedOffset)), builder(context.builder),
        loc(plan.op->getLoc()), math(builder, loc), unit(createUnit(context, plan)),
        bIsStaged(domain.tile.getReusesKept()) {}

  LogicalResult prefetch() override {
    // A CTA with several tiles or chunks would overwrite what is prefetched before it is used.
    bool isSingle = domain.numTiles <= context.grid && plan.numChunks == 1;
    aIsStaged = isSingle && isPrefetched(plan.aOperand->get());
    bool stagesB = isSingle && !bIsStaged && isPrefetched(plan.bOperand->get());
    SmallVector<StagedOperand, 2> operands;
    if (aIsStaged)
      operands.push_back({plan.aOperand, plan.a, aTile()});
    if (stagesB)
      operands.push_back({plan.bOperand, plan.b, bTile()});
    bIsStaged |= stagesB;
    if (operands.empty())
      return success();
    return context.forEachTile(domain, [&](ArrayRef<LaneIndex> origin) {
      return stageOperands(context, domain, plan, operands, chunkStart(origin, math.constant(0)));
    });
  }

  LogicalResult run() override {
    std::string fault = unit->check();
    if (!fault.empty())
      return domain.tile->emitError() << "tile sizes do not fit: " << fault;
    return context.forEachTile(domain, [&](ArrayRef<LaneIndex> origin) -> LogicalResult {
      initial = unit->initialAccumulators();
      locateResults(origin);
      FailureOr<SmallVector<Value>> accumulators = multiplyChunks(origin);
      if (failed(accumulators) || failed(unit->meet(*accumulators)))
        return failure();
      return finish(*accumulators);
    });
  }

private:
  static ContractionPlan planAt(const TileDomain &domain, int64_t threads, int64_t sharedOffset) {
    ContractionPlan plan(domain, threads);
    plan.a.byteOffset += sharedOffset;
    if (!plan.keptAt)
      plan.b.byteOffset += sharedOffset;
    plan.partialsOffset += sharedOffset;
    return plan;
  }

  Value aTile() { return context.sharedView(loc, {plan.a.outer, plan.a.pitch}, plan.a.element, plan.a.byteOffset); }
  Value bTile() { return context.sharedView(loc, {plan.b.outer, plan.b.pitch}, plan.b.element, plan.b.byteOffset); }

  // All inputs that a value of the region is computed from may be read early.
  bool isPrefetched(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return domain.tile.isPrefetched(argument.getArgNumber());
    return llvm::all_of(value.getDefiningOp()->getOperands(), [&](Value operand) { return isPrefetched(operand); });
  }

  static std::unique_ptr<MultiplyUnit> createUnit(const CtaContext &context, const ContractionPlan &plan) {
    auto unit = plan.onMatrixUnit ? createMatrixUnit(context, plan) : createThreadFma(context, plan);
    return plan.layout.groups == 1 ? std::move(unit) : createPartialSums(context, plan, std::move(unit));
  }

  // Where a chain of additions would be long, each chunk has sums of its own: the rounding error grows with the length.
  FailureOr<SmallVector<Value>> multiplyChunks(ArrayRef<LaneIndex> origin) {
    constexpr int64_t longChain = 512;
    int64_t additions = plan.numChunks * plan.sizeOf(plan.kLoop) / (unit->depth() * plan.layout.groups);
    if (plan.numChunks == 1 || additions <= longChain)
      return carryThrough(builder, loc, plan.numChunks, initial, [&](Value chunk, ValueRange accumulators) {
        return multiplyChunk(origin, chunk, accumulators);
      });
    auto addChunk = [&](Value chunk, ValueRange totals) -> FailureOr<SmallVector<Value>> {
      FailureOr<SmallVector<Value>> sums = multiplyChunk(origin, chunk, initial);
      if (failed(sums))
        return failure();
      for (auto [sum, total] : llvm::zip(*sums, totals))
        sum = arith::AddFOp::create(builder, loc, total, sum);
      return sums;
    };
    return carryThrough(builder, loc, plan.numChunks, initial, addChunk);
  }

  FailureOr<SmallVector<Value>> multiplyChunk(ArrayRef<LaneIndex> origin, Value chunk, ValueRange accumulators) {
    SmallVector<StagedOperand, 2> operands;
    Value a = aTile(), b = bTile();
    if (!aIsStaged)
      operands.push_back({plan.aOperand, plan.a, a});
    if (!bIsStaged)
      operands.push_back({plan.bOperand, plan.b, b});
    if (failed(stageOperands(context, domain, plan, operands, chunkStart(origin, chunk))))
      return failure();
    context.barrier(loc);
    SmallVector<Value> next = unit->multiply(a, b, accumulators);
    context.barrier(loc);
    return next;
  }

  // The loop indices at which chunk number `chunk` of the tile at `origin` starts.
  SmallVector<LaneIndex> chunkStart(ArrayRef<LaneIndex> origin, Value chunk) {
    SmallVector<LaneIndex> base(plan.extents.size());
    for (auto [loop, start] : llvm::zip(domain.region.parallelLoops, origin))
      base[loop] = start;
    SmallVector<Value> chunkAt = math.delinearize(chunk, plan.chunkCounts);
    for (auto [loop, coordinate] : llvm::zip(domain.region.reductionLoops, chunkAt))
      base[loop] = {math.mul(coordinate, plan.sizeOf(loop)), 0, plan.sizeOf(loop)};
    return base;
  }

  /// A run of results that this thread holds, and the emitter of its epilogue.
  struct Result {
    SmallVector<LaneIndex> indices;
    Value inBounds;
    std::unique_ptr<ElementEmitter> emitter;
  };

  // What the epilogue reads is loaded before the product is computed, where no bound has to be tested first.
  void locateResults(ArrayRef<LaneIndex> origin) {
    results.clear();
    int64_t lanes = unit->lanes();
    for (auto [m, n] : unit->resultPlaces()) {
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
      if (plan.rows < plan.sizeOf(plan.mLoop))
        result.inBounds = math.both(result.inBounds, math.less(m, plan.rows));
      result.emitter = std::make_unique<ElementEmitter>(builder, domain.tile, lanes);
      if (!result.inBounds)
        for (Value yielded : domain.region.yielded)
          result.emitter->preload(yielded, result.indices);
      results.push_back(std::move(result));
    }
  }

  LogicalResult finish(ValueRange accumulators) {
    for (auto [index, result] : llvm::enumerate(results)) {
      Value holds = unit->hasResults(index);
      if (result.inBounds)
        holds = math.both(holds, result.inBounds);
      if (failed(context.when(loc, holds,
                              [&] { return finishElements(result, unit->resultValues(accumulators, index)); })))
        return failure();
    }
    // The next tile's operands take the place of the partial sums.
    if (plan.layout.groups > 1)
      context.barrier(loc);
    return success();
  }

  LogicalResult finishElements(Result &result, Value values) {
    ElementEmitter &emitter = *result.emitter;
    Value init = emitter.emit(plan.op.getDpsInits()[0], result.indices);
    if (!init)
      return failure();
    // Adding the usual zero would cost an instruction per element and change nothing but the sign of a zero.
    if (!isZero(init))
      values = arith::AddFOp::create(builder, loc, init, values);
    emitter.bind(plan.op->getResult(0), values);
    return emitResults(emitter, domain, result.indices);
  }

  static bool isZero(Value value) {
    if (auto broadcast = value.getDefiningOp<vector::BroadcastOp>())
      value = broadcast.getSource();
    return matchPattern(value, m_AnyZeroFloat());
  }

  const CtaContext &context;
  TileDomain &domain;
  ContractionPlan plan;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  std::unique_ptr<MultiplyUnit> unit;
  /// What is in shared memory before `run`.
  bool aIsStaged = false, bIsStaged;
  SmallVector<Value> initial;
  SmallVector<Result> results;
};
} // namespace

std::unique_ptr<TileEmitter> mlir::megakernel::createContraction(const CtaContext &context, TileDomain &domain,
                                                                 int64_t sharedOffset) {
  return std::make_unique<ContractionEmitter>(context, domain, sharedOffset);
}
