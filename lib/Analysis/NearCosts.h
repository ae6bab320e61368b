//===- NearCosts.h - what reading nearby saves ------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_NEARCOSTS_H
#define TRAINKERNEL_LIB_ANALYSIS_NEARCOSTS_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/TargetTable.h"
#include "lib/Scheduling/TileCost.h"

namespace mlir::megakernel {

/// What a CTA spends on a tile, of which `cost` is predicted as if all operands came from afar, where some are in its
/// shared memory or registers.
trainkernel::TileCost withNearOperands(KernelOp kernel, TileOp tile, const trainkernel::TileCost &cost,
                                       const trainkernel::TargetFacts &facts);

} // namespace mlir::megakernel

#endif
