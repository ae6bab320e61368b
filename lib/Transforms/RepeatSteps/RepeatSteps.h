//===- RepeatSteps.h -------------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_REPEATSTEPS_H
#define TRAINKERNEL_LIB_TRANSFORMS_REPEATSTEPS_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/RepeatSteps/RepeatSteps.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/RepeatSteps/RepeatSteps.h.inc"

} // namespace mlir::megakernel

#endif
