//===- TileDomain.h - coordinates in a tile op's domain ---------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_TILEDOMAIN_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_TILEDOMAIN_H

#include "lib/Analysis/TileGeometry.h"
#include "lib/Conversion/Common/ElementEmitter.h"

namespace mlir::megakernel {

/// A tile op's geometry with the code that finds places in it.
struct TileDomain : TileGeometry {
  using TileGeometry::TileGeometry;

  /// Coordinates of the first element of tile number `linear`.
  SmallVector<LaneIndex> origin(const IndexMath &math, Value linear) const;
  /// All of `indices` are inside of the domain; null where that needs no test.
  Value inBounds(const IndexMath &math, ArrayRef<LaneIndex> indices) const;
};

/// The loop indices at which chunk number `chunk` of a contraction's tile starts, whose results start at `origin`.
SmallVector<LaneIndex> chunkOrigin(const IndexMath &math, const TileDomain &domain, const ContractionGeometry &loops,
                                   ArrayRef<LaneIndex> origin, Value chunk);

/// All results of the tile op at `indices`.
FailureOr<SmallVector<Value>> computeResults(ElementEmitter &emitter, const TileDomain &domain,
                                             ArrayRef<LaneIndex> indices);
void writeResults(ElementEmitter &emitter, const TileDomain &domain, ArrayRef<LaneIndex> indices, ValueRange values);
/// Both, one after the other: everything is read before anything is written.
LogicalResult emitResults(ElementEmitter &emitter, const TileDomain &domain, ArrayRef<LaneIndex> indices);

} // namespace mlir::megakernel

#endif
