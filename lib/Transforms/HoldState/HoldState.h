//===- HoldState.h -----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_HOLDSTATE_H
#define TRAINKERNEL_LIB_TRANSFORMS_HOLDSTATE_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/HoldState/HoldState.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/HoldState/HoldState.h.inc"

} // namespace mlir::megakernel

#endif
