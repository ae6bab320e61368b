//===- MegakernelToCPU.h ---------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOCPU_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOCPU_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Conversion/MegakernelToCPU/MegakernelToCPU.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Conversion/MegakernelToCPU/MegakernelToCPU.h.inc"

} // namespace mlir::megakernel

#endif
