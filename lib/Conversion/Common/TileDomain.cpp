//===- TileDomain.cpp - the domain that a tile op is cut over -------------===//

#include "lib/Conversion/Common/TileDomain.h"

using namespace mlir;
using namespace mlir::megakernel;

SmallVector<LaneIndex> TileDomain::origin(const IndexMath &math, Value linear) const {
  SmallVector<LaneIndex> indices;
  for (auto [coordinate, size] : llvm::zip(math.delinearize(linear, tileCounts), sizes))
    indices.push_back({math.mul(coordinate, size), 0, size});
  return indices;
}

Value TileDomain::inBounds(const IndexMath &math, ArrayRef<LaneIndex> indices) const {
  Value inside;
  for (auto [dim, index] : llvm::enumerate(indices))
    if (isPartial(dim))
      inside = math.both(inside, math.less(index.base, shape()[dim]));
  return inside;
}

SmallVector<LaneIndex> mlir::megakernel::chunkOrigin(const IndexMath &math, const TileDomain &domain,
                                                     const ContractionGeometry &loops, ArrayRef<LaneIndex> origin,
                                                     Value chunk) {
  SmallVector<LaneIndex> base(loops.extents.size());
  for (auto [loop, start] : llvm::zip(domain.region.parallelLoops, origin))
    base[loop] = start;
  SmallVector<Value> at = math.delinearize(chunk, loops.chunkCounts);
  for (auto [loop, coordinate] : llvm::zip(domain.region.reductionLoops, at))
    base[loop] = {math.mul(coordinate, loops.sizeOf(loop)), 0, loops.sizeOf(loop)};
  return base;
}

FailureOr<SmallVector<Value>> mlir::megakernel::computeResults(ElementEmitter &emitter, const TileDomain &domain,
                                                               ArrayRef<LaneIndex> indices) {
  SmallVector<Value> values;
  for (Value yielded : domain.region.yielded) {
    values.push_back(emitter.emit(yielded, indices));
    if (!values.back())
      return failure();
  }
  return values;
}

void mlir::megakernel::writeResults(ElementEmitter &emitter, const TileDomain &domain, ArrayRef<LaneIndex> indices,
                                    ValueRange values) {
  TileOp tile = domain.tile;
  for (auto [value, output] : llvm::zip(values, tile.getOutputs()))
    emitter.store(tile.getLoc(), value, output, indices);
}

LogicalResult mlir::megakernel::emitResults(ElementEmitter &emitter, const TileDomain &domain,
                                            ArrayRef<LaneIndex> indices) {
  FailureOr<SmallVector<Value>> values = computeResults(emitter, domain, indices);
  if (failed(values))
    return failure();
  writeResults(emitter, domain, indices, *values);
  return success();
}
