//===- WorkerContext.cpp - what code of one CPU worker needs to know ------===//

#include "lib/Conversion/MegakernelToCPU/WorkerContext.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mlir::megakernel;

Value WorkerContext::scratchView(Location loc, ArrayRef<int64_t> shape, Type element, int64_t byteOffset) const {
  return memref::ViewOp::create(builder, loc, MemRefType::get(shape, element), scratch, math(loc).constant(byteOffset),
                                ValueRange());
}

void WorkerContext::barrier(Location loc) const {
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder.getContext()), {poolContext.getType()});
  LLVM::CallOp::create(builder, loc, type, ValueRange{barrierFunction, poolContext});
}

LogicalResult WorkerContext::forEachTile(const TileDomain &domain,
                                         function_ref<LogicalResult(ArrayRef<LaneIndex>)> body) const {
  TileOp tile = domain.tile;
  Location loc = tile.getLoc();
  IndexMath math = this->math(loc);
  // Tile t runs on worker (first_cta + t) mod workers; (worker - first_cta) mod workers without a negative number.
  Value back = math.mul(math.sub(numWorkers, math.constant(1)), tile.getFirstCta());
  Value first = tile.getFirstCta() == 0 ? worker : math.rem(math.add(worker, back), numWorkers);
  auto loop = scf::ForOp::create(builder, loc, first, math.constant(domain.numTiles), numWorkers);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  return body(domain.origin(math, loop.getInductionVar()));
}

LogicalResult WorkerContext::forEach(Location loc, LoopRange range, function_ref<LogicalResult(Value)> body) const {
  IndexMath math = this->math(loc);
  if (range.staticLength == 1)
    return body(math.constant(0));
  auto loop = scf::ForOp::create(builder, loc, math.constant(0), range.end, math.constant(1));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(loop.getBody());
  return body(loop.getInductionVar());
}

LogicalResult WorkerContext::forEachVector(Location loc, LoopRange range, int64_t lanes,
                                           function_ref<LogicalResult(Value, int64_t)> body) const {
  IndexMath math = this->math(loc);
  if (range.staticLength != 0)
    while (lanes > 1 && lanes > range.staticLength)
      lanes /= 2;
  Value whole = math.mul(math.div(range.end, lanes), lanes);
  {
    auto loop = scf::ForOp::create(builder, loc, math.constant(0), whole, math.constant(lanes));
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    if (failed(body(loop.getInductionVar(), lanes)))
      return failure();
  }
  if (lanes == 1 || (range.staticLength != 0 && range.staticLength % lanes == 0))
    return success();
  auto rest = scf::ForOp::create(builder, loc, whole, range.end, math.constant(1));
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(rest.getBody());
  return body(rest.getInductionVar(), 1);
}

LoopRange WorkerContext::clip(Location loc, Value start, int64_t size, int64_t extent) const {
  IndexMath math = this->math(loc);
  if (extent % size == 0)
    return {math.constant(size), size};
  if (size >= extent)
    return {math.constant(extent), extent};
  return {math.min(math.constant(size), math.sub(math.constant(extent), start)), 0};
}

static LogicalResult walkElements(const WorkerContext &context, const TileDomain &domain, ArrayRef<LaneIndex> origin,
                                  SmallVector<LaneIndex> indices,
                                  function_ref<LogicalResult(ArrayRef<LaneIndex>, int64_t)> body) {
  Location loc = TileOp(domain.tile).getLoc();
  IndexMath math = context.math(loc);
  size_t dim = indices.size();
  if (dim == origin.size())
    return body(indices, 1);
  LoopRange range = context.clip(loc, origin[dim].base, domain.sizes[dim], domain.shape()[dim]);
  if (dim + 1 < origin.size())
    return context.forEach(loc, range, [&](Value index) {
      SmallVector<LaneIndex> next(indices);
      next.push_back({math.add(origin[dim].base, index), 0, 1});
      return walkElements(context, domain, origin, next, body);
    });
  return context.forEachVector(loc, range, context.lanes, [&](Value index, int64_t lanes) {
    SmallVector<LaneIndex> next(indices);
    int64_t divisor = std::gcd(lanes, origin[dim].divisor);
    next.push_back({math.add(origin[dim].base, index), lanes > 1 ? 1 : 0, divisor});
    return body(next, lanes);
  });
}

LogicalResult WorkerContext::forEachElement(const TileDomain &domain, ArrayRef<LaneIndex> origin,
                                            function_ref<LogicalResult(ArrayRef<LaneIndex>, int64_t)> body) const {
  return walkElements(*this, domain, origin, {}, body);
}
