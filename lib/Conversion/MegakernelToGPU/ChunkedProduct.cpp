//===- ChunkedProduct.cpp - a tile's product, chunk by chunk of k ---------===//

#include "lib/Conversion/MegakernelToGPU/Contraction.h"

#include "lib/Conversion/Common/CarriedLoop.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::megakernel;

ChunkedProduct::ChunkedProduct(const CtaContext &context, TileDomain &domain, const ContractionPlan &plan,
                               MultiplyUnit &unit, bool isAlone)
    : context(context), domain(domain), plan(plan), unit(unit), isAlone(isAlone), builder(context.builder),
      loc(plan.op->getLoc()), math(builder, loc), aStager(context, domain, plan, plan.aOperand, plan.a),
      bStager(context, domain, plan, plan.bOperand, plan.b), aIsStaged(plan.rowsAt.has_value()),
      bIsStaged(domain.tile.getReusesKept()) {}

LogicalResult ChunkedProduct::stageFirst(ArrayRef<LaneIndex> origin, bool isAThere, bool isBThere) {
  // A first chunk that others replace would be gone before it is used.
  bool keepsFirst = plan.numChunks == 1 || plan.isPipelined;
  bool stagesA = keepsFirst && !aIsStaged && isAThere, stagesB = keepsFirst && !bIsStaged && isBThere;
  aIsStaged |= stagesA;
  bIsStaged |= stagesB;
  hasPrefetched = stagesA || stagesB;
  if (!hasPrefetched)
    return success();
  return stageOperands(context, loc, operandsIn(tilesOf(nullptr), stagesA, stagesB),
                       chunkStart(origin, math.constant(0)));
}

// Chunks alternate between the tiles of a pipeline; the first chunk may be null.
ChunkedProduct::Tiles ChunkedProduct::tilesOf(Value chunk) {
  Value stage = chunk && plan.isPipelined ? math.mul(math.rem(chunk, 2), plan.stageBytes) : math.constant(0);
  auto view = [&](const SharedTile &tile) {
    int64_t width = tile.swizzle ? tile.panelWidth() : tile.pitch;
    return context.sharedView(loc, {tile.outer * tile.pitch / width, width}, tile.element,
                              math.add(stage, tile.byteOffset));
  };
  return {view(plan.a), view(plan.b)};
}

SmallVector<StagedOperand, 2> ChunkedProduct::operandsIn(Tiles tiles, bool withA, bool withB) {
  SmallVector<StagedOperand, 2> operands;
  if (withA)
    operands.push_back({&aStager, tiles.a});
  if (withB)
    operands.push_back({&bStager, tiles.b});
  return operands;
}

FailureOr<SmallVector<Value>> ChunkedProduct::multiply(ArrayRef<LaneIndex> origin, ValueRange initialSums) {
  initial = initialSums;
  if (plan.isPipelined)
    return multiplyPipelined(origin);
  return carryThrough(builder, loc, plan.numChunks, initial,
                      [&](Value chunk, ValueRange accumulators) -> FailureOr<SmallVector<Value>> {
                        Tiles tiles = tilesOf(chunk);
                        SmallVector<StagedOperand, 2> missing = operandsIn(tiles, !aIsStaged, !bIsStaged);
                        if (failed(stageOperands(context, loc, missing, chunkStart(origin, chunk))))
                          return failure();
                        // What is there from earlier phases has a barrier behind it.
                        if (!missing.empty() || hasPrefetched)
                          meetStaged();
                        SmallVector<Value> next = finishProduct(startProduct(tiles, accumulators));
                        // The next chunk, or the sums, take the place of the operands.
                        bool isOverwritten = plan.layout.meets ? plan.sumsOffset() == 0 : !isAlone;
                        if (plan.numChunks > 1 || (plan.stageBytes > 0 && isOverwritten))
                          context.barrier(loc);
                        return next;
                      });
}

// While a chunk is multiplied, the next one goes into the other tile and the one after that is on its way. One
// barrier per chunk is enough: whoever writes a tile has passed the barrier behind the multiplication that read it
// last. What multiplies by itself starts first; else warps turn to the one while others are at the other.
FailureOr<SmallVector<Value>> ChunkedProduct::multiplyPipelined(ArrayRef<LaneIndex> origin) {
  Value zero = math.constant(0), one = math.constant(1);
  Tiles first = tilesOf(zero);
  SmallVector<StagedOperand, 2> missing = operandsIn(first, !aIsStaged, !bIsStaged);
  SmallVector<Value> loaded = loadOperands(missing, chunkStart(origin, zero));
  SmallVector<Value> early = loadOperands(operandsIn(first, aIsStaged, bIsStaged), chunkStart(origin, one));
  FailureOr<SmallVector<Value>> exchanged =
      exchangeOperands(missing, chunkStart(origin, zero), loaded, chunkStart(origin, one));
  if (failed(exchanged))
    return failure();
  // What was loaded for a comes before what was loaded for b.
  SmallVector<Value> carried = aIsStaged ? early : *exchanged;
  llvm::append_range(carried, aIsStaged ? *exchanged : early);
  size_t numLoaded = carried.size();
  llvm::append_range(carried, initial);
  meetStaged();
  auto middle = [&](Value chunk, ValueRange values) -> FailureOr<SmallVector<Value>> {
    Value following = math.add(chunk, one);
    SmallVector<Value> own(values.take_front(numLoaded));
    Product product = startProduct(tilesOf(chunk), values.drop_front(numLoaded));
    FailureOr<SmallVector<Value>> next =
        exchangeOperands(operandsIn(tilesOf(following), true, true), chunkStart(origin, following), own,
                         chunkStart(origin, math.add(following, one)));
    if (failed(next))
      return failure();
    llvm::append_range(*next, finishProduct(product));
    meetStaged();
    return next;
  };
  FailureOr<SmallVector<Value>> values = carryThrough(builder, loc, plan.numChunks - 2, carried, middle);
  if (failed(values))
    return failure();
  Value last = math.constant(plan.numChunks - 1);
  Product product =
      startProduct(tilesOf(math.constant(plan.numChunks - 2)), ArrayRef<Value>(*values).drop_front(numLoaded));
  if (failed(storeOperands(operandsIn(tilesOf(last), true, true), chunkStart(origin, last),
                           ArrayRef<Value>(*values).take_front(numLoaded))))
    return failure();
  SmallVector<Value> sums = finishProduct(product);
  meetStaged();
  sums = finishProduct(startProduct(tilesOf(last), sums));
  // Whoever comes next may fill the tiles.
  if (plan.layout.meets || !isAlone)
    context.barrier(loc);
  return sums;
}

void ChunkedProduct::meetStaged() {
  unit.publishTiles();
  context.barrier(loc);
}

// Where a chain of additions would be long, each chunk has sums of its own: the rounding error grows with the length.
ChunkedProduct::Product ChunkedProduct::startProduct(Tiles tiles, ValueRange accumulators) {
  constexpr int64_t longChain = 512;
  int64_t additions = plan.numChunks * plan.sizeOf(plan.kLoop) / (unit.depth() * plan.layout.groups);
  bool hasTotals = plan.numChunks > 1 && additions > longChain;
  Product product{tiles, SmallVector<Value>(accumulators), {}, unit.isAsynchronous()};
  if (hasTotals) {
    product.totals = product.sums;
    product.sums = initial;
  }
  if (product.isStarted)
    product.sums = unit.start(tiles.a, tiles.b, product.sums);
  return product;
}

SmallVector<Value> ChunkedProduct::finishProduct(const Product &product) {
  SmallVector<Value> sums =
      product.isStarted ? unit.finish(product.sums) : unit.multiply(product.tiles.a, product.tiles.b, product.sums);
  if (!product.totals.empty())
    for (auto [sum, total] : llvm::zip_equal(sums, product.totals))
      sum = arith::AddFOp::create(builder, loc, total, sum);
  return sums;
}

SmallVector<LaneIndex> ChunkedProduct::chunkStart(ArrayRef<LaneIndex> origin, Value chunk) {
  return chunkOrigin(math, domain, plan, origin, chunk);
}
