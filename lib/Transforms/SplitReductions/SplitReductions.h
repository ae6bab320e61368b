//===- SplitReductions.h ---------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_SPLITREDUCTIONS_H
#define TRAINKERNEL_LIB_TRANSFORMS_SPLITREDUCTIONS_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/SplitReductions/SplitReductions.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/SplitReductions/SplitReductions.h.inc"

} // namespace mlir::megakernel

#endif
