//===- MegakernelToGPU.h ---------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

/// Ops up to which a kernel keeps all its code in one function. ptxas takes some 4 seconds for as many, and such code
/// is the fastest there is: a call costs some tens of nanoseconds, out of the few microseconds that a small step takes.
inline constexpr int64_t smallGPUKernel = 20000;

#define GEN_PASS_DECL
#include "lib/Conversion/MegakernelToGPU/MegakernelToGPU.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Conversion/MegakernelToGPU/MegakernelToGPU.h.inc"

} // namespace mlir::megakernel

#endif
