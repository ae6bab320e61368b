//===- MegakernelToGPU.h ---------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Conversion/MegakernelToGPU/MegakernelToGPU.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Conversion/MegakernelToGPU/MegakernelToGPU.h.inc"

} // namespace mlir::megakernel

#endif
