//===- KernelBuilder.h - builds the scheduled form --------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_KERNELBUILDER_H
#define TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_KERNELBUILDER_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/TargetTable.h"
#include "lib/Transforms/SchedulePhases/PlanOverrides.h"

namespace mlir::megakernel {

/// Replaces a fused step by a kernel scheduled for `target`, as the planner chooses but for what is overridden; or by
/// two, one for launches of one step and one for those of several, where that is faster and not `oneKernel`.
LogicalResult buildKernel(StepOp step, const trainkernel::TargetFacts &target, const PlanOverrides &overrides,
                          bool oneKernel);

} // namespace mlir::megakernel

#endif
