//===- SchedulePhases.h ----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_H
#define TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/SchedulePhases/SchedulePhases.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/SchedulePhases/SchedulePhases.h.inc"

} // namespace mlir::megakernel

#endif
