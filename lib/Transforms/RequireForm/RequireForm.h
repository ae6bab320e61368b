//===- RequireForm.h ---------------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_REQUIREFORM_H
#define TRAINKERNEL_LIB_TRANSFORMS_REQUIREFORM_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/RequireForm/RequireForm.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/RequireForm/RequireForm.h.inc"

} // namespace mlir::megakernel

#endif
