//===- Contraction.cpp - matrix products on a CPU worker ------------------===//
//
// Both operands of a tile are packed into scratch as float32, k chunk by k chunk; the prologue is computed on the way
// in. A block of rows by two vectors of columns is then held in registers over the whole chunk.
//
//===----------------------------------------------------------------------===//

#include "lib/Conversion/MegakernelToCPU/WorkerContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::megakernel;

namespace {
/// Scratch layout of a tile: a as rows of k, b as rows of n, the sums as rows of n. Rows and columns are rounded up to
/// whole register blocks; what is computed there in excess is never read.
struct ScratchLayout {
  ScratchLayout(int64_t m, int64_t n, int64_t k) : m(llvm::alignTo(m, 8)), n(llvm::alignTo(n, 32)), k(k) {}
  int64_t bOffset() const { return llvm::alignTo(m * k * 4, 64); }
  int64_t sumOffset() const { return llvm::alignTo(bOffset() + k * n * 4, 64); }
  int64_t bytes() const { return sumOffset() + m * n * 4; }
  int64_t m, n, k;
};

class ContractionEmitter {
public:
  ContractionEmitter(const WorkerContext &context, TileDomain &domain)
      : context(context), domain(domain), op(domain.region.reduction), builder(context.builder), loc(op.getLoc()),
        math(builder, loc), loops(domain),
        layout(loops.sizeOf(loops.mLoop), loops.sizeOf(loops.nLoop), loops.sizeOf(loops.kLoop)) {
    // Two vectors of columns; as many rows as leave registers for operands (16 with 256 bits, 32 with 512).
    blockRows = context.lanes >= 16 ? 8 : 4;
    blockVectors = 2;
  }

  LogicalResult run() {
    Type f32 = builder.getF32Type();
    aMemory = context.scratchView(loc, {layout.m, layout.k}, f32, 0);
    bMemory = context.scratchView(loc, {layout.k, layout.n}, f32, layout.bOffset());
    sums = context.scratchView(loc, {layout.m, layout.n}, f32, layout.sumOffset());
    return context.forEachTile(domain, [&](ArrayRef<LaneIndex> origin) -> LogicalResult {
      if (failed(multiplyChunks(origin)))
        return failure();
      return finish(origin);
    });
  }

private:
  LogicalResult multiplyChunks(ArrayRef<LaneIndex> origin) {
    return context.forEach(loc, {math.constant(loops.numChunks), loops.numChunks}, [&](Value chunk) -> LogicalResult {
      SmallVector<LaneIndex> base = chunkOrigin(math, domain, loops, origin, chunk);
      if (failed(pack(loops.aOperand, aMemory, loops.mLoop, loops.kLoop, base)) ||
          failed(pack(loops.bOperand, bMemory, loops.kLoop, loops.nLoop, base)))
        return failure();
      LoopRange depth = clip(loops.kLoop, base);
      return multiplyBlocks(chunk, depth);
    });
  }

  LoopRange clip(unsigned loop, ArrayRef<LaneIndex> base) {
    return context.clip(loc, base[loop].base, loops.sizeOf(loop), loops.extentOf(loop));
  }

  // Copies an operand's tile to `memory` as float32, reading along what is contiguous in its source.
  LogicalResult pack(OpOperand *operand, Value memory, unsigned rowLoop, unsigned columnLoop,
                     ArrayRef<LaneIndex> base) {
    bool alongRows = contiguousLoop(op, operand) == rowLoop;
    unsigned outer = alongRows ? columnLoop : rowLoop, inner = alongRows ? rowLoop : columnLoop;
    return context.forEach(loc, clip(outer, base), [&](Value o) {
      return context.forEachVector(loc, clip(inner, base), context.lanes, [&](Value i, int64_t lanes) -> LogicalResult {
        SmallVector<LaneIndex> at(base);
        int64_t stride = lanes > 1 ? 1 : 0;
        at[outer] = {math.add(base[outer].base, o), 0, 1};
        at[inner] = {math.add(base[inner].base, i), stride, std::gcd(lanes, base[inner].divisor)};
        SmallVector<LaneIndex> indices;
        for (AffineExpr expr : op.getMatchingIndexingMap(operand).getResults())
          indices.push_back(at[cast<AffineDimExpr>(expr).getPosition()]);
        ElementEmitter emitter = context.emitter(domain.tile, lanes);
        Value value = emitter.emit(operand->get(), indices);
        if (!value)
          return failure();
        LaneIndex outerIndex{o, 0, 1}, innerIndex{i, stride, lanes};
        SmallVector<LaneIndex> target =
            alongRows ? SmallVector<LaneIndex>{innerIndex, outerIndex} : SmallVector<LaneIndex>{outerIndex, innerIndex};
        emitter.store(loc, widen(value), memory, target);
        return success();
      });
    });
  }

  Value widen(Value value) {
    if (getElementTypeOrSelf(value.getType()).isF32())
      return value;
    Type type = builder.getF32Type();
    if (auto vector = dyn_cast<VectorType>(value.getType()))
      type = VectorType::get(vector.getShape(), type);
    return arith::ExtFOp::create(builder, loc, type, value);
  }

  LogicalResult multiplyBlocks(Value chunk, LoopRange depth) {
    int64_t columns = blockVectors * context.lanes;
    auto rowLoop =
        scf::ForOp::create(builder, loc, math.constant(0), math.constant(layout.m), math.constant(blockRows));
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(rowLoop.getBody());
    auto columnLoop =
        scf::ForOp::create(builder, loc, math.constant(0), math.constant(layout.n), math.constant(columns));
    builder.setInsertionPointToStart(columnLoop.getBody());
    multiplyBlock(chunk, depth, rowLoop.getInductionVar(), columnLoop.getInductionVar());
    return success();
  }

  Value loadVector(Value memory, Value row, Value column) {
    return vector::LoadOp::create(builder, loc, vectorType(), memory, ValueRange{row, column}, /*nontemporal=*/false,
                                  llvm::MaybeAlign(context.lanes * 4));
  }

  VectorType vectorType() { return VectorType::get(context.lanes, builder.getF32Type()); }

  // Each chunk has sums of its own, so that no value goes through a chain of additions as long as the reduction.
  void multiplyBlock(Value chunk, LoopRange depth, Value row, Value column) {
    Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(vectorType()));
    Value isFirst = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, chunk, math.constant(0));
    SmallVector<Value> initial(blockRows * blockVectors, zero);
    auto loop = scf::ForOp::create(builder, loc, math.constant(0), depth.end, math.constant(1), initial);
    {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToStart(loop.getBody());
      scf::YieldOp::create(builder, loc, multiplyAdd(loop.getInductionVar(), row, column, loop.getRegionIterArgs()));
    }
    forEachVectorOfBlock(row, column, [&](int64_t index, Value r, Value c) {
      Value sum = loop.getResult(index);
      if (loops.numChunks > 1) {
        Value before = arith::SelectOp::create(builder, loc, isFirst, zero, loadVector(sums, r, c));
        sum = arith::AddFOp::create(builder, loc, before, sum);
      }
      vector::StoreOp::create(builder, loc, sum, sums, ValueRange{r, c}, /*nontemporal=*/false,
                              llvm::MaybeAlign(context.lanes * 4));
    });
  }

  void forEachVectorOfBlock(Value row, Value column, function_ref<void(int64_t, Value, Value)> body) {
    for (int64_t i = 0; i < blockRows; ++i)
      for (int64_t j = 0; j < blockVectors; ++j)
        body(i * blockVectors + j, math.add(row, i), math.add(column, j * context.lanes));
  }

  SmallVector<Value> multiplyAdd(Value k, Value row, Value column, ValueRange accumulators) {
    SmallVector<Value> bVectors, next;
    for (int64_t j = 0; j < blockVectors; ++j)
      bVectors.push_back(loadVector(bMemory, k, math.add(column, j * context.lanes)));
    for (int64_t i = 0; i < blockRows; ++i) {
      Value element = memref::LoadOp::create(builder, loc, aMemory, ValueRange{math.add(row, i), k});
      Value repeated = vector::BroadcastOp::create(builder, loc, vectorType(), element);
      for (int64_t j = 0; j < blockVectors; ++j)
        next.push_back(vector::FMAOp::create(builder, loc, repeated, bVectors[j], accumulators[i * blockVectors + j]));
    }
    return next;
  }

  LogicalResult finish(ArrayRef<LaneIndex> origin) {
    return context.forEachElement(domain, origin, [&](ArrayRef<LaneIndex> indices, int64_t lanes) -> LogicalResult {
      // Coordinates in the tile, in the order m, n, with the lanes where they are.
      SmallVector<LaneIndex> inTile(2, LaneIndex{math.constant(0), 0, 1});
      for (auto [loop, index, start] : llvm::zip(domain.region.parallelLoops, indices, origin)) {
        LaneIndex local{math.sub(index.base, start.base), index.stride, index.stride ? lanes : 1};
        if (loop == loops.mLoop)
          inTile[0] = local;
        else if (loop == loops.nLoop)
          inTile[1] = local;
      }
      ElementEmitter emitter = context.emitter(domain.tile, lanes);
      Value init = emitter.emit(op.getDpsInits()[0], indices);
      if (!init)
        return failure();
      Value sum = arith::AddFOp::create(builder, loc, init, emitter.load(loc, sums, inTile));
      emitter.bind(op->getResult(0), sum);
      return emitResults(emitter, domain, indices);
    });
  }

  const WorkerContext &context;
  TileDomain &domain;
  linalg::GenericOp op;
  OpBuilder &builder;
  Location loc;
  IndexMath math;
  ContractionGeometry loops;
  ScratchLayout layout;
  int64_t blockRows, blockVectors;
  Value aMemory, bMemory, sums;
};
} // namespace

int64_t mlir::megakernel::scratchBytesOf(const TileDomain &domain) {
  FusedRegion region = domain.region;
  if (!region.isContraction())
    return 0;
  ContractionGeometry loops(domain);
  return ScratchLayout(loops.sizeOf(loops.mLoop), loops.sizeOf(loops.nLoop), loops.sizeOf(loops.kLoop)).bytes();
}

LogicalResult mlir::megakernel::emitContraction(const WorkerContext &context, TileDomain &domain) {
  return ContractionEmitter(context, domain).run();
}
