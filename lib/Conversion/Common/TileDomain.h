//===- TileDomain.h - the domain that a tile op is cut over -----*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_TILEDOMAIN_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_TILEDOMAIN_H

#include "dialects/Megakernel/FusedRegion.h"
#include "lib/Conversion/Common/ElementEmitter.h"

namespace mlir::megakernel {

/// The domain of a tile op and its cut into tiles.
struct TileDomain {
  explicit TileDomain(TileOp tile);

  TileOp tile;
  FusedRegion region;
  /// Tile sizes of the parallel and of the reduction dimensions.
  ArrayRef<int64_t> sizes, reductionSizes;
  /// Tiles along each parallel dimension, and in all.
  SmallVector<int64_t> tileCounts;
  int64_t numTiles = 1;

  ArrayRef<int64_t> shape() const { return region.parallelShape; }
  /// Coordinates of the first element of tile number `linear`.
  SmallVector<LaneIndex> origin(const IndexMath &math, Value linear) const;
  /// True where tiles reach past the domain in dimension `dim`.
  bool isPartial(size_t dim) const { return shape()[dim] % sizes[dim] != 0; }
  /// All of `indices` are inside of the domain; null where that needs no test.
  Value inBounds(const IndexMath &math, ArrayRef<LaneIndex> indices) const;
};

/// Emits all results of the tile op at `indices` and writes them. Everything is read before anything is written.
LogicalResult emitResults(ElementEmitter &emitter, const TileDomain &domain, ArrayRef<LaneIndex> indices);

/// The largest power of two, at most `limit`, that divides all of `values`.
int64_t commonPowerOfTwo(int64_t limit, ArrayRef<int64_t> values);

/// The roles of a contraction's loops. Within m, n and k the innermost loop is tiled; others go one by one.
struct ContractionLoops {
  explicit ContractionLoops(FusedRegion &region);
  SmallVector<unsigned> batch, m, n, k;
};

/// The loop of `op` along which input `operand` is contiguous in the memory that it is read from.
unsigned contiguousLoop(linalg::GenericOp op, OpOperand *operand);

} // namespace mlir::megakernel

#endif
