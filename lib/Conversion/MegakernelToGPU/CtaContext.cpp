//===- CtaContext.cpp - what code of one CTA needs to know ----------------===//

#include "lib/Conversion/MegakernelToGPU/CtaContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::megakernel;

Value CtaContext::sharedView(Location loc, ArrayRef<int64_t> shape, Type element, int64_t byteOffset) const {
  return sharedView(loc, shape, element, math(loc).constant(byteOffset));
}

Value CtaContext::sharedView(Location loc, ArrayRef<int64_t> shape, Type element, Value byteOffset) const {
  auto space = gpu::AddressSpaceAttr::get(builder.getContext(), gpu::AddressSpace::Workgroup);
  auto type = MemRefType::get(shape, element, AffineMap(), space);
  return memref::ViewOp::create(builder, loc, type, shared, byteOffset, ValueRange());
}

void CtaContext::barrier(Location loc) const { gpu::BarrierOp::create(builder, loc); }

LogicalResult CtaContext::when(Location loc, Value condition, function_ref<LogicalResult()> body) const {
  if (!condition)
    return body();
  auto branch = scf::IfOp::create(builder, loc, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  return body();
}

CtaContext::Values CtaContext::valuesWhen(Location loc, Value condition, function_ref<Values()> body) const {
  if (!condition)
    return body();
  Values values = failure();
  auto yieldZeros = [&](OpBuilder &nested, Location nestedLoc) {
    SmallVector<Value> zeros;
    if (succeeded(values))
      for (Value value : *values)
        zeros.push_back(arith::ConstantOp::create(nested, nestedLoc, nested.getZeroAttr(value.getType())));
    scf::YieldOp::create(nested, nestedLoc, zeros);
  };
  auto yieldValues = [&](OpBuilder &nested, Location nestedLoc) {
    values = body();
    scf::YieldOp::create(nested, nestedLoc, succeeded(values) ? ValueRange(*values) : ValueRange());
  };
  auto branch = scf::IfOp::create(builder, loc, condition, yieldValues, yieldZeros);
  return succeeded(values) ? Values(SmallVector<Value>(branch.getResults())) : Values(failure());
}

static LogicalResult forStrided(const CtaContext &context, Location loc, Value first, int64_t count, int64_t step,
                                function_ref<LogicalResult(Value)> body) {
  IndexMath math = context.math(loc);
  if (count == step && first == context.thread)
    return body(first);
  if (count <= step)
    return context.when(loc, math.less(first, count), [&] { return body(first); });
  auto loop = scf::ForOp::create(context.builder, loc, first, math.constant(count), math.constant(step));
  OpBuilder::InsertionGuard guard(context.builder);
  context.builder.setInsertionPointToStart(loop.getBody());
  return body(loop.getInductionVar());
}

// Tile t runs on CTA (first_cta + t) mod grid.
Value CtaContext::firstTileOf(const TileDomain &domain) const {
  TileOp tile = domain.tile;
  IndexMath math = this->math(tile.getLoc());
  int64_t offset = tile.getFirstCta() % grid;
  return offset == 0 ? cta : math.rem(math.add(cta, grid - offset), grid);
}

CtaContext::Values CtaContext::valuesOfTile(const TileDomain &domain,
                                            function_ref<Values(ArrayRef<LaneIndex> origin)> body) const {
  assert(domain.numTiles <= grid && "a CTA has several tiles");
  TileOp tile = domain.tile;
  Location loc = tile.getLoc();
  IndexMath math = this->math(loc);
  Value number = firstTileOf(domain);
  Value isOwner = leavesOut(domain) ? math.less(number, domain.numTiles) : Value();
  return valuesWhen(loc, isOwner, [&] { return body(domain.origin(math, number)); });
}

LogicalResult CtaContext::forEachTile(const TileDomain &domain,
                                      function_ref<LogicalResult(ArrayRef<LaneIndex> origin)> body) const {
  TileOp tile = domain.tile;
  Location loc = tile.getLoc();
  IndexMath math = this->math(loc);
  Value first = firstTileOf(domain);
  if (isOwnTile(domain))
    return body(domain.origin(math, first));
  return forStrided(*this, loc, first, domain.numTiles, grid, [&](Value number) {
    SmallVector<LaneIndex> origin = domain.origin(math, number);
    return leavesOut(domain) && record ? record([&] { return body(origin); }) : body(origin);
  });
}

LogicalResult CtaContext::forEachItem(Location loc, int64_t count, int64_t firstThread,
                                      function_ref<LogicalResult(Value)> body) const {
  IndexMath math = this->math(loc);
  Value first = thread;
  if (firstThread % threads != 0)
    first = math.rem(math.add(thread, threads - firstThread % threads), threads);
  return forStrided(*this, loc, first, count, threads, body);
}
