//===- TileFootprint.h - which elements a tile touches ----------*- C++ -*-===//
//
// Walks a fused region from its results backwards: the box of results that a tile computes becomes the boxes of each
// input that it reads, through indexing maps and views.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_TILEFOOTPRINT_H
#define TRAINKERNEL_LIB_ANALYSIS_TILEFOOTPRINT_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/Placement.h"

#include <memory>

namespace mlir::megakernel {

/// The boxes of each region argument that the elements of the results in `box` are computed from.
SmallVector<SmallVector<trainkernel::Box>> boxesRead(Region &region, const trainkernel::Box &box);

/// What the tiles of an op touch.
struct TileFootprints {
  /// What they read of each input, over the shape of that input.
  SmallVector<std::shared_ptr<const trainkernel::Footprint>> inputs;
  /// What they write of each output, over the shape of the outputs.
  std::shared_ptr<const trainkernel::Footprint> outputs;
};

TileFootprints footprintsOf(TileOp tile);

/// Where the tiles of a kernel's ops run.
trainkernel::Placement placementOf(KernelOp kernel);

/// The scope of a barrier by its name in the IR, and by what it joins: one of a kernel that has no more CTAs than that
/// joins all of them.
trainkernel::SyncScope joinedBy(KernelOp kernel, Scope scope);

/// The name of a barrier that joins what has to meet; a kernel of one CTA or one cluster has none beyond that.
Scope barrierScope(KernelOp kernel, trainkernel::SyncScope scope);

} // namespace mlir::megakernel

#endif
