//===- NormalizeNumerics.h -------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_NORMALIZENUMERICS_H
#define TRAINKERNEL_LIB_TRANSFORMS_NORMALIZENUMERICS_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/NormalizeNumerics/NormalizeNumerics.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/NormalizeNumerics/NormalizeNumerics.h.inc"

} // namespace mlir::megakernel

#endif
