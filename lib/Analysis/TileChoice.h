//===- TileChoice.h - fused regions as the planner sees them ----*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_TILECHOICE_H
#define TRAINKERNEL_LIB_ANALYSIS_TILECHOICE_H

#include "dialects/Megakernel/FusedRegion.h"
#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/GridPlanner.h"

namespace mlir::megakernel {

/// What the planner needs to know of a fused region.
trainkernel::OpModel modelOf(Region &body);

/// The numbers of rows for which each row of `after` reads nothing of `before` but the same row.
llvm::SmallVector<int64_t, 2> sharedRowsOf(FusedOp before, FusedOp after);

/// For a contraction, a text of what its rows are multiplied with where that is computed from arguments alone: equal
/// texts, equal operands. Else nothing.
std::optional<std::string> sharedOperandOf(FusedOp op);

/// For a contraction, the instructions of its epilogue for each result.
int64_t epilogueWork(FusedRegion &region);

/// The tile sizes of a plan, in the order that `megakernel.tile` wants them.
SmallVector<int64_t> tileSizesOf(Region &body, const trainkernel::OpPlan &plan);

/// The plan whose tile sizes are these, without a cost.
trainkernel::OpPlan planOf(Region &body, const trainkernel::OpModel &model, ArrayRef<int64_t> sizes);

} // namespace mlir::megakernel

#endif
