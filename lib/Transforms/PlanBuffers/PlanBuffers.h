//===- PlanBuffers.h -------------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_PLANBUFFERS_H
#define TRAINKERNEL_LIB_TRANSFORMS_PLANBUFFERS_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/PlanBuffers/PlanBuffers.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/PlanBuffers/PlanBuffers.h.inc"

} // namespace mlir::megakernel

#endif
