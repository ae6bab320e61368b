//===- KernelBuilder.h - builds the scheduled form --------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_KERNELBUILDER_H
#define TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_KERNELBUILDER_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/TargetTable.h"
#include "lib/Transforms/SchedulePhases/PlanOverrides.h"

namespace mlir::megakernel {

/// Replaces a fused step by a kernel scheduled for `target`, as the planner chooses but for what is overridden.
LogicalResult buildKernel(StepOp step, const trainkernel::TargetFacts &target, const PlanOverrides &overrides);

} // namespace mlir::megakernel

#endif
