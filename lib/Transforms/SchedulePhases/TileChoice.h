//===- TileChoice.h - fused regions as the planner sees them ----*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_TILECHOICE_H
#define TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_TILECHOICE_H

#include "dialects/Megakernel/FusedRegion.h"
#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/GridPlanner.h"

namespace mlir::megakernel {

/// What the planner needs to know of a fused op.
trainkernel::OpModel modelOf(FusedOp op);

/// The numbers of rows for which each row of `after` reads nothing of `before` but the same row.
llvm::SmallVector<int64_t, 2> sharedRowsOf(FusedOp before, FusedOp after);

/// The tile sizes of a plan, in the order that `megakernel.tile` wants them.
SmallVector<int64_t> tileSizesOf(FusedOp op, const trainkernel::OpPlan &plan);

} // namespace mlir::megakernel

#endif
