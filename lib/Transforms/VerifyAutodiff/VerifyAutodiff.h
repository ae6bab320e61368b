//===- VerifyAutodiff.h ----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_VERIFYAUTODIFF_H
#define TRAINKERNEL_LIB_TRANSFORMS_VERIFYAUTODIFF_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/VerifyAutodiff/VerifyAutodiff.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/VerifyAutodiff/VerifyAutodiff.h.inc"

} // namespace mlir::megakernel

#endif
