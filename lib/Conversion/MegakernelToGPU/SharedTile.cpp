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
    lanes = commonPowerOfTwo(16 / bytes, {plan.extentOf(readLoop), plan.sizeOf(readLoop)});
  }

  LogicalResult run() {
    int64_t runs = plan.sizeOf(readLoop) / lanes;
    return context.forEachItem(loc, runs * plan.sizeOf(otherLoop), [&](Value item) -> LogicalResult {
      Value other = math.div(item, runs), read = math.mul(math.rem(item, runs), lanes);
      SmallVector<LaneIndex> loops(base);
      loops[otherLoop] = {math.add(base[otherLoop].base, other), 0, 1};
      loops[readLoop] = {math.add(base[readLoop].base, read), lanes > 1 ? 1 : 0, lanes};
      Value value = guardedElements(loops);
      if (!value)
        return failure();
      store(value, other, read);
      return success();
    });
  }

private:
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

  // Zero outside of the domain, so that it adds nothing to the product.
  Value guardedElements(ArrayRef<LaneIndex> loops) {
    Value inside;
    for (unsigned loop : {readLoop, otherLoop})
      if (plan.extentOf(loop) % plan.sizeOf(loop) != 0)
        inside = math.both(inside, math.less(loops[loop].base, plan.extentOf(loop)));
    if (!inside)
      return elements(loops);
    Type type = lanes > 1 ? Type(VectorType::get(lanes, tile.element)) : tile.element;
    auto branch = scf::IfOp::create(builder, loc, type, inside, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(branch.thenBlock());
    Value value = elements(loops);
    if (!value)
      return nullptr;
    scf::YieldOp::create(builder, loc, value);
    builder.setInsertionPointToStart(branch.elseBlock());
    scf::YieldOp::create(builder, loc, Value(arith::ConstantOp::create(builder, loc, builder.getZeroAttr(type))));
    return branch.getResult(0);
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
};
} // namespace

LogicalResult mlir::megakernel::stage(const CtaContext &context, TileDomain &domain, const ContractionPlan &plan,
                                      OpOperand *operand, const SharedTile &tile, Value memory,
                                      ArrayRef<LaneIndex> base) {
  return Stager(context, domain, plan, operand, tile, memory, base).run();
}
