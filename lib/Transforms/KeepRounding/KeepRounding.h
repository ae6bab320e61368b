//===- KeepRounding.h ------------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_KEEPROUNDING_H
#define TRAINKERNEL_LIB_TRANSFORMS_KEEPROUNDING_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/KeepRounding/KeepRounding.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/KeepRounding/KeepRounding.h.inc"

} // namespace mlir::megakernel

#endif
