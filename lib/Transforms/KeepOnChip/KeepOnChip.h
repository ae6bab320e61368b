//===- KeepOnChip.h ----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_KEEPONCHIP_H
#define TRAINKERNEL_LIB_TRANSFORMS_KEEPONCHIP_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/KeepOnChip/KeepOnChip.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/KeepOnChip/KeepOnChip.h.inc"

} // namespace mlir::megakernel

#endif
