//===- ImportLinalg.h ------------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_IMPORTLINALG_H
#define TRAINKERNEL_LIB_TRANSFORMS_IMPORTLINALG_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/ImportLinalg/ImportLinalg.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/ImportLinalg/ImportLinalg.h.inc"

} // namespace mlir::megakernel

#endif
