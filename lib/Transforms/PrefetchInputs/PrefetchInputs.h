//===- PrefetchInputs.h ----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_PREFETCHINPUTS_H
#define TRAINKERNEL_LIB_TRANSFORMS_PREFETCHINPUTS_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/PrefetchInputs/PrefetchInputs.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/PrefetchInputs/PrefetchInputs.h.inc"

} // namespace mlir::megakernel

#endif
