//===- FetchAhead.h ----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_FETCHAHEAD_H
#define TRAINKERNEL_LIB_TRANSFORMS_FETCHAHEAD_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/FetchAhead/FetchAhead.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/FetchAhead/FetchAhead.h.inc"

} // namespace mlir::megakernel

#endif
