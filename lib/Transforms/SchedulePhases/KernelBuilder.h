//===- KernelBuilder.h - builds the scheduled form --------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_KERNELBUILDER_H
#define TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_KERNELBUILDER_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/TargetTable.h"

namespace mlir::megakernel {

/// Replaces a fused step by a kernel scheduled for `target`. `grid` CTAs, or as many as the tiles ask for where 0.
LogicalResult buildKernel(StepOp step, const trainkernel::TargetFacts &target, int64_t grid);

} // namespace mlir::megakernel

#endif
