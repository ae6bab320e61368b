//===- KeepOperands.h ----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_KEEPOPERANDS_H
#define TRAINKERNEL_LIB_TRANSFORMS_KEEPOPERANDS_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/KeepOperands/KeepOperands.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/KeepOperands/KeepOperands.h.inc"

} // namespace mlir::megakernel

#endif
