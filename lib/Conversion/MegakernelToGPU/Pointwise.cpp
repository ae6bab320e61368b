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

LogicalResult mlir::megakernel::emitPointwise(const CtaContext &context, TileDomain &domain) {
  Location loc = domain.tile.getLoc();
  IndexMath math = context.math(loc);
  int64_t lanes = chooseLanes(domain);
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
      return context.when(loc, domain.inBounds(math, indices), [&] {
        ElementEmitter emitter(context.builder, domain.tile, lanes);
        return emitResults(emitter, domain, indices);
      });
    });
  });
}
