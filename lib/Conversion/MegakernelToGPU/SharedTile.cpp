//===- SharedTile.cpp - staging operands in shared memory -----------------===//

#include "lib/Conversion/MegakernelToGPU/Contraction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::megakernel;

Stager::Stager(const CtaContext &context, TileDomain &domain, const ContractionPlan &plan, OpOperand *operand,
               const SharedTile &tile)
    : context(context), domain(domain), plan(plan), operand(operand), tile(tile), builder(context.builder),
      loc(plan.op->getLoc()), math(builder, loc) {}

int64_t Stager::vectorsPerItem() const { return tile.vectorsPerItem; }

int64_t Stager::itemsPerThread() const { return llvm::divideCeil(tile.numItems(), context.threads); }

// Rows beyond the tile's own repeat the last one: they may be another CTA's, at work on them.
Value Stager::withinOwn(unsigned loop, Value local, int64_t count) {
  return plan.ownSizeOf(loop) == plan.sizeOf(loop) ? local
                                                   : math.min(local, math.constant(plan.ownSizeOf(loop) - count));
}

// Item `number` (a value, or null for 0) + `offset` of this thread, in the tile at the loop indices `base`.
Stager::Item Stager::itemAt(ArrayRef<LaneIndex> base, Value number, int64_t offset) {
  Value own = number ? math.add(number, offset) : math.constant(offset);
  Value item = math.add(context.thread, math.mul(own, context.threads));
  // Threads past the end bring the last one in again.
  if (tile.numItems() % context.threads != 0)
    item = math.min(item, math.constant(tile.numItems() - 1));
  int64_t runs = plan.sizeOf(tile.readLoop) / tile.lanes;
  Item result;
  result.other = math.div(item, runs);
  result.read = math.mul(math.rem(item, runs), tile.lanes);
  SmallVector<LaneIndex> loops(base);
  Value other = withinOwn(tile.otherLoop, result.other, 1), read = withinOwn(tile.readLoop, result.read, tile.lanes);
  loops[tile.otherLoop] = {math.add(base[tile.otherLoop].base, other), 0, 1};
  loops[tile.readLoop] = {math.add(base[tile.readLoop].base, read), tile.lanes > 1 ? 1 : 0, tile.lanes};
  // What is outside of the domain is read at its edge, and zero takes its place: a branch would keep loads apart.
  for (unsigned loop : {tile.readLoop, tile.otherLoop}) {
    int64_t extent = plan.extentOf(loop);
    if (extent % plan.sizeOf(loop) == 0)
      continue;
    result.isInside = math.both(result.isInside, math.less(loops[loop].base, extent));
    loops[loop].base = math.min(loops[loop].base, math.constant(extent - (loop == tile.readLoop ? tile.lanes : 1)));
  }
  linalg::GenericOp op = plan.op;
  for (AffineExpr expr : op.getMatchingIndexingMap(operand).getResults())
    result.indices.push_back(loops[cast<AffineDimExpr>(expr).getPosition()]);
  return result;
}

// Where an item goes in the tile.
SmallVector<LaneIndex> Stager::placeOf(const Item &item) {
  LaneIndex read{item.read, tile.lanes > 1 ? 1 : 0, tile.lanes}, other{item.other, 0, 1};
  if (!tile.swizzle)
    return tile.readLoop == tile.innerLoop ? SmallVector<LaneIndex>{other, read} : SmallVector<LaneIndex>{read, other};
  // In each 128 bytes of a panel, the bits of the address that number the 128 bytes change those of the 16 bytes.
  assert(tile.readLoop == tile.innerLoop && "panels are written along their rows");
  constexpr int64_t bytesTogether = 16, bytesAround = 128;
  int64_t perChunk = bytesTogether / tile.elementBytes();
  Value row = math.add(item.other, math.mul(math.div(item.read, tile.panelWidth()), tile.outer));
  Value change = math.rem(math.div(item.other, bytesAround / tile.swizzle), tile.swizzle / bytesTogether);
  Value column =
      arith::XOrIOp::create(builder, loc, math.rem(item.read, tile.panelWidth()), math.mul(change, perChunk));
  return {LaneIndex{row, 0, 1}, LaneIndex{column, read.stride, tile.lanes}};
}

SmallVector<Value> Stager::load(ArrayRef<LaneIndex> base, Value first, int64_t offset) {
  Item item = itemAt(base, first, offset);
  return ElementEmitter(builder, domain.tile, tile.lanes).preload(operand->get(), item.indices);
}

LogicalResult Stager::store(Value memory, ArrayRef<LaneIndex> base, Value first, int64_t offset,
                            ArrayRef<Value> &loaded) {
  Item item = itemAt(base, first, offset);
  ElementEmitter emitter(builder, domain.tile, tile.lanes);
  emitter.useLoaded(operand->get(), item.indices, loaded);
  Value value = emitter.emit(operand->get(), item.indices);
  if (!value)
    return failure();
  value = widen(emitter.splat(loc, value));
  // Zero adds nothing to the product.
  if (item.isInside) {
    Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(value.getType()));
    value = arith::SelectOp::create(builder, loc, item.isInside, value, zero);
  }
  emitter.store(loc, value, memory, placeOf(item));
  return success();
}

// Operands that are not narrow are float32 in shared memory, whatever they were.
Value Stager::widen(Value value) {
  if (getElementTypeOrSelf(value.getType()) == tile.element)
    return value;
  Type type = tile.lanes > 1 ? Type(VectorType::get(tile.lanes, tile.element)) : tile.element;
  return arith::ExtFOp::create(builder, loc, type, value);
}

using trainkernel::maxVectorsInFlight;

// All loads of `count` items are issued before the first of their values is needed.
static LogicalResult stageItems(const StagedOperand &staged, ArrayRef<LaneIndex> base, Value first, int64_t offset,
                                int64_t count) {
  SmallVector<Value> loaded;
  for (int64_t i = 0; i < count; ++i)
    llvm::append_range(loaded, staged.stager->load(base, first, offset + i));
  ArrayRef<Value> rest = loaded;
  for (int64_t i = 0; i < count; ++i)
    if (failed(staged.stager->store(staged.memory, base, first, offset + i, rest)))
      return failure();
  return success();
}

static LogicalResult stageInBatches(const CtaContext &context, Location loc, const StagedOperand &staged,
                                    ArrayRef<LaneIndex> base) {
  IndexMath math = context.math(loc);
  int64_t batch = std::max<int64_t>(1, maxVectorsInFlight / staged.stager->vectorsPerItem());
  int64_t items = staged.stager->itemsPerThread(), whole = items / batch * batch;
  if (whole > 0) {
    auto loop = scf::ForOp::create(context.builder, loc, math.constant(0), math.constant(whole), math.constant(batch));
    OpBuilder::InsertionGuard guard(context.builder);
    context.builder.setInsertionPointToStart(loop.getBody());
    if (failed(stageItems(staged, base, loop.getInductionVar(), 0, batch)))
      return failure();
  }
  return stageItems(staged, base, nullptr, whole, items - whole);
}

static int64_t vectorsOf(ArrayRef<StagedOperand> operands) {
  int64_t vectors = 0;
  for (const StagedOperand &staged : operands)
    vectors += staged.stager->itemsPerThread() * staged.stager->vectorsPerItem();
  return vectors;
}

LogicalResult mlir::megakernel::stageOperands(const CtaContext &context, Location loc, ArrayRef<StagedOperand> operands,
                                              ArrayRef<LaneIndex> base) {
  if (vectorsOf(operands) > maxVectorsInFlight) {
    for (const StagedOperand &staged : operands)
      if (failed(stageInBatches(context, loc, staged, base)))
        return failure();
    return success();
  }
  SmallVector<Value> loaded = loadOperands(operands, base);
  return storeOperands(operands, base, loaded);
}

SmallVector<Value> mlir::megakernel::loadOperands(ArrayRef<StagedOperand> operands, ArrayRef<LaneIndex> base) {
  SmallVector<Value> loaded;
  for (const StagedOperand &staged : operands)
    for (int64_t i = 0, e = staged.stager->itemsPerThread(); i < e; ++i)
      llvm::append_range(loaded, staged.stager->load(base, nullptr, i));
  return loaded;
}

LogicalResult mlir::megakernel::storeOperands(ArrayRef<StagedOperand> operands, ArrayRef<LaneIndex> base,
                                              ArrayRef<Value> loaded) {
  for (const StagedOperand &staged : operands)
    for (int64_t i = 0, e = staged.stager->itemsPerThread(); i < e; ++i)
      if (failed(staged.stager->store(staged.memory, base, nullptr, i, loaded)))
        return failure();
  return success();
}

FailureOr<SmallVector<Value>> mlir::megakernel::exchangeOperands(ArrayRef<StagedOperand> operands,
                                                                 ArrayRef<LaneIndex> base, ArrayRef<Value> loaded,
                                                                 ArrayRef<LaneIndex> nextBase) {
  SmallVector<Value> next;
  for (const StagedOperand &staged : operands)
    for (int64_t i = 0, e = staged.stager->itemsPerThread(); i < e; ++i) {
      if (failed(staged.stager->store(staged.memory, base, nullptr, i, loaded)))
        return failure();
      llvm::append_range(next, staged.stager->load(nextBase, nullptr, i));
    }
  return next;
}
