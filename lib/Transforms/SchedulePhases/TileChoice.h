//===- TileChoice.h - tile sizes of a fused region --------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_TILECHOICE_H
#define TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_TILECHOICE_H

#include "dialects/Megakernel/FusedRegion.h"
#include "lib/Scheduling/TargetTable.h"

namespace mlir::megakernel {

/// Tile sizes over the domain of a fused region, as `megakernel.tile` wants them.
SmallVector<int64_t> chooseTileSizes(FusedRegion &parts, const trainkernel::TargetFacts &target);

} // namespace mlir::megakernel

#endif
