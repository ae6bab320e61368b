//===- TileChoice.h - fused regions as the planner sees them ----*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_TILECHOICE_H
#define TRAINKERNEL_LIB_ANALYSIS_TILECHOICE_H

#include "dialects/Megakernel/FusedRegion.h"
#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/GridPlanner.h"

namespace mlir::megakernel {

/// What the planner needs to know of a fused region that runs in `phase`.
trainkernel::OpModel modelOf(Region &body, unsigned phase);

/// The tile sizes of a plan, in the order that `megakernel.tile` wants them.
SmallVector<int64_t> tileSizesOf(Region &body, const trainkernel::OpPlan &plan);

/// The plan whose tile sizes are these, without a cost.
trainkernel::OpPlan planOf(Region &body, const trainkernel::OpModel &model, ArrayRef<int64_t> sizes);

} // namespace mlir::megakernel

#endif
