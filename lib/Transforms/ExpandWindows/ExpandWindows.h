//===- ExpandWindows.h -----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_EXPANDWINDOWS_H
#define TRAINKERNEL_LIB_TRANSFORMS_EXPANDWINDOWS_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/ExpandWindows/ExpandWindows.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/ExpandWindows/ExpandWindows.h.inc"

} // namespace mlir::megakernel

#endif
