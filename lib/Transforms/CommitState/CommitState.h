//===- CommitState.h -------------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_COMMITSTATE_H
#define TRAINKERNEL_LIB_TRANSFORMS_COMMITSTATE_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/CommitState/CommitState.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/CommitState/CommitState.h.inc"

} // namespace mlir::megakernel

#endif
