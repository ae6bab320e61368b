//===- SharedTile.cpp - staging operands in shared memory -----------------===//

#include "lib/Conversion/MegakernelToGPU/Contraction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
class Stager {
public:
  Stager(const CtaContext &context, TileDomain &domain, const ContractionPlan &plan, OpOperand *operand,
         const SharedTile &tile, Value memory, ArrayRef<LaneIndex> base)
      : context(context), domain(domain), plan(plan), operand(operand), tile(tile), memory(memory), base(base),
        builder(context.builder), loc(plan.op->getLoc()), math(builder, loc) {
    // Global memory is read along the loop that is contiguous there, whatever the order in shared memory.
    readLoop = contiguousLoop(plan.op, operand);
    otherLoop = readLoop == tile.innerLoop ? tile.outerLoop : tile.innerLoop;
    if (readLoop != tile.innerLoop && readLoop != tile.outerLoop) {
      readLoop = tile.innerLoop;
      otherLoop = tile.outerLoop;
    }
    int64_t bytes = cast<RankedTensorType>(operand->get().getType()).getElementTypeBitWidth() / 8;
    lanes = commonPowerOfTwo(16 / bytes, {plan.extentOf(readLoop), ownSize(readLoop)});
  }

  /// Vectors that each thread brings in.
  int64_t itemsPerThread() const { return llvm::divideCeil(numItems(), context.threads); }

  /// Brings in the thread's items number `first` (a value, or null for 0) + `offset` and following: all loads are
  /// issued before the first of their values is needed.
  LogicalResult load(Value first, int64_t offset, int64_t count) {
    loaded.clear();
    for (int64_t i = 0; i < count; ++i) {
      Value number = first ? math.add(first, offset + i) : math.constant(offset + i);
      Value item = math.add(context.thread, math.mul(number, context.threads));
      // Threads past the end bring the last one in again.
      if (numItems() % context.threads != 0)
        item = math.min(item, math.constant(numItems() - 1));
      int64_t runs = plan.sizeOf(readLoop) / lanes;
      Value other = math.div(item, runs), read = math.mul(math.rem(item, runs), lanes);
      SmallVector<LaneIndex> loops(base);
      loops[otherLoop] = {math.add(base[otherLoop].base, withinOwn(otherLoop, other, 1)), 0, 1};
      loops[readLoop] = {math.add(base[readLoop].base, withinOwn(readLoop, read, lanes)), lanes > 1 ? 1 : 0, lanes};
      Value value = guardedElements(loops);
      if (!value)
        return failure();
      loaded.push_back({value, other, read});
    }
    return success();
  }

  void store() {
    for (auto &[value, other, read] : loaded)
      store(value, other, read);
  }

private:
  // How much of a loop is the tile's own: a matrix unit may multiply more rows than there are.
  int64_t ownSize(unsigned loop) const { return loop == plan.mLoop ? plan.rows : plan.sizeOf(loop); }
  // Rows beyond repeat the last one: they may be another CTA's, at work on them.
  Value withinOwn(unsigned loop, Value local, int64_t count) {
    return ownSize(loop) == plan.sizeOf(loop) ? local : math.min(local, math.constant(ownSize(loop) - count));
  }

  int64_t numItems() const { return plan.sizeOf(readLoop) / lanes * plan.sizeOf(otherLoop); }
  Value elements(ArrayRef<LaneIndex> loops) {
    ElementEmitter emitter(builder, domain.tile, lanes);
    SmallVector<LaneIndex> indices;
    linalg::GenericOp op = plan.op;
    for (AffineExpr expr : op.getMatchingIndexingMap(operand).getResults())
      indices.push_back(loops[cast<AffineDimExpr>(expr).getPosition()]);
    Value value = emitter.emit(operand->get(), indices);
    if (!value)
      return nullptr;
    return widen(emitter.splat(loc, value));
  }

  // Operands of ThreadFma are float32 in shared memory, whatever they were.
  Value widen(Value value) {
    if (getElementTypeOrSelf(value.getType()) == tile.element)
      return value;
    Type type = lanes > 1 ? Type(VectorType::get(lanes, tile.element)) : tile.element;
    return arith::ExtFOp::create(builder, loc, type, value);
  }

  // Zero outside of the domain, so that it adds nothing to the product. A branch would keep loads apart, so what is
  // outside is read at the edge instead and thrown away.
  Value guardedElements(SmallVector<LaneIndex> &loops) {
    Value inside;
    for (unsigned loop : {readLoop, otherLoop}) {
      int64_t extent = plan.extentOf(loop);
      if (extent % plan.sizeOf(loop) == 0)
        continue;
      inside = math.both(inside, math.less(loops[loop].base, extent));
      loops[loop].base = math.min(loops[loop].base, math.constant(extent - (loop == readLoop ? lanes : 1)));
    }
    Value value = elements(loops);
    if (!inside || !value)
      return value;
    Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(value.getType()));
    return arith::SelectOp::create(builder, loc, inside, value, zero);
  }

  void store(Value value, Value other, Value read) {
    LaneIndex readIndex{read, lanes > 1 ? 1 : 0, lanes}, otherIndex{other, 0, 1};
    bool sameOrder = readLoop == tile.innerLoop;
    SmallVector<LaneIndex> indices =
        sameOrder ? SmallVector<LaneIndex>{otherIndex, readIndex} : SmallVector<LaneIndex>{readIndex, otherIndex};
    ElementEmitter(builder, domain.tile, lanes).store(loc, value, memory, indices);
  }

  const CtaContext &context;
  TileDomain &domain;
  const ContractionPlan &plan;
  OpOperand *operand;
  const SharedTile &tile;
  Value memory;
  ArrayRef<LaneIndex> base;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  unsigned readLoop, otherLoop;
  int64_t lanes;
  /// What was brought in, and its place in the tile.
  SmallVector<std::tuple<Value, Value, Value>> loaded;
};
} // namespace

using trainkernel::maxVectorsInFlight;

static LogicalResult stageInBatches(const CtaContext &context, Location loc, Stager &stager) {
  IndexMath math = context.math(loc);
  int64_t items = stager.itemsPerThread(), whole = items / maxVectorsInFlight * maxVectorsInFlight;
  if (whole > 0) {
    auto loop = scf::ForOp::create(context.builder, loc, math.constant(0), math.constant(whole),
                                   math.constant(maxVectorsInFlight));
    OpBuilder::InsertionGuard guard(context.builder);
    context.builder.setInsertionPointToStart(loop.getBody());
    if (failed(stager.load(loop.getInductionVar(), 0, maxVectorsInFlight)))
      return failure();
    stager.store();
  }
  if (failed(stager.load(nullptr, whole, items - whole)))
    return failure();
  stager.store();
  return success();
}

LogicalResult mlir::megakernel::stageOperands(const CtaContext &context, TileDomain &domain,
                                              const ContractionPlan &plan, ArrayRef<StagedOperand> operands,
                                              ArrayRef<LaneIndex> base) {
  SmallVector<Stager, 2> stagers;
  int64_t items = 0;
  for (const StagedOperand &staged : operands) {
    stagers.emplace_back(context, domain, plan, staged.operand, staged.tile, staged.memory, base);
    items += stagers.back().itemsPerThread();
  }
  if (items > maxVectorsInFlight) {
    for (Stager &stager : stagers)
      if (failed(stageInBatches(context, plan.op->getLoc(), stager)))
        return failure();
    return success();
  }
  for (Stager &stager : stagers)
    if (failed(stager.load(nullptr, 0, stager.itemsPerThread())))
      return failure();
  for (Stager &stager : stagers)
    stager.store();
  return success();
}
