//===- InsertBarriers.h ----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_INSERTBARRIERS_H
#define TRAINKERNEL_LIB_TRANSFORMS_INSERTBARRIERS_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/InsertBarriers/InsertBarriers.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/InsertBarriers/InsertBarriers.h.inc"

} // namespace mlir::megakernel

#endif
