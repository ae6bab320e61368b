//===- CheckSchedule.h -----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_CHECKSCHEDULE_H
#define TRAINKERNEL_LIB_TRANSFORMS_CHECKSCHEDULE_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/CheckSchedule/CheckSchedule.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/CheckSchedule/CheckSchedule.h.inc"

} // namespace mlir::megakernel

#endif
