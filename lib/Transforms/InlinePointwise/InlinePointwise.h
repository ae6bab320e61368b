//===- InlinePointwise.h ---------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_INLINEPOINTWISE_H
#define TRAINKERNEL_LIB_TRANSFORMS_INLINEPOINTWISE_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/InlinePointwise/InlinePointwise.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/InlinePointwise/InlinePointwise.h.inc"

} // namespace mlir::megakernel

#endif
