//===- Pointwise.cpp - tiles without a reduction --------------------------===//

#include "lib/Conversion/MegakernelToGPU/CtaContext.h"

#include "lib/Analysis/Sources.h"

using namespace mlir;
using namespace mlir::megakernel;

// Lanes per thread: up to 16 bytes of the widest input or output, as far as rows and tiles are multiples of it.
static int64_t chooseLanes(const TileDomain &domain) {
  if (domain.shape().empty())
    return 1;
  int64_t widest = 1;
  for (Value value : domain.region.yielded)
    widest = std::max({widest, bytesPerElement(value), widestSourceBytes(value)});
  return commonPowerOfTwo(16 / widest, {domain.shape().back(), domain.sizes.back()});
}

bool mlir::megakernel::areAlike(const TileDomain &a, const TileDomain &b) {
  TileOp first = a.tile, second = b.tile;
  return a.shape() == b.shape() && a.sizes == b.sizes && first.getFirstCta() == second.getFirstCta();
}

// Emits all results of all domains at `indices`. Everything is read before anything is written, so that no op waits for
// what another one reads.
static LogicalResult emitAllResults(const CtaContext &context, ArrayRef<const TileDomain *> domains, int64_t lanes,
                                    ArrayRef<LaneIndex> indices) {
  SmallVector<std::unique_ptr<ElementEmitter>> emitters;
  SmallVector<SmallVector<Value>> values;
  for (const TileDomain *domain : domains) {
    emitters.push_back(std::make_unique<ElementEmitter>(context.builder, domain->tile, lanes));
    values.emplace_back();
    for (Value yielded : domain->region.yielded) {
      values.back().push_back(emitters.back()->emit(yielded, indices));
      if (!values.back().back())
        return failure();
    }
  }
  for (auto [domain, emitter, own] : llvm::zip(domains, emitters, values)) {
    TileOp tile = domain->tile;
    for (auto [value, output] : llvm::zip(own, tile.getOutputs()))
      emitter->store(tile.getLoc(), value, output, indices);
  }
  return success();
}

LogicalResult mlir::megakernel::emitPointwise(const CtaContext &context, ArrayRef<const TileDomain *> domains) {
  const TileDomain &domain = *domains.front();
  Location loc = TileOp(domain.tile).getLoc();
  IndexMath math = context.math(loc);
  int64_t lanes = chooseLanes(domain);
  for (const TileDomain *other : domains)
    lanes = std::min(lanes, chooseLanes(*other));
  SmallVector<int64_t> extents(domain.sizes);
  if (!extents.empty())
    extents.back() /= lanes;
  int64_t items = 1;
  for (int64_t extent : extents)
    items *= extent;
  return context.forEachTile(domain, [&](ArrayRef<LaneIndex> origin) {
    return context.forEachItem(loc, items, [&](Value item) {
      SmallVector<LaneIndex> indices;
      SmallVector<Value> local = math.delinearize(item, extents);
      for (auto [dim, start] : llvm::enumerate(origin)) {
        bool isLast = dim + 1 == origin.size();
        Value step = isLast ? math.mul(local[dim], lanes) : local[dim];
        indices.push_back({math.add(start.base, step), isLast && lanes > 1 ? 1 : 0, isLast ? lanes : 1});
      }
      return context.when(loc, domain.inBounds(math, indices),
                          [&] { return emitAllResults(context, domains, lanes, indices); });
    });
  });
}
