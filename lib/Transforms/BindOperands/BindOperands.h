//===- BindOperands.h ----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_BINDOPERANDS_H
#define TRAINKERNEL_LIB_TRANSFORMS_BINDOPERANDS_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/BindOperands/BindOperands.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/BindOperands/BindOperands.h.inc"

} // namespace mlir::megakernel

#endif
