//===- MegakernelToCPU.h ---------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOCPU_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOCPU_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

/// Ops up to which a step keeps all its code in one function. LLVM takes some 2 seconds for as many. A call is nothing
/// beside a barrier of threads, but the code of one function is optimised as a whole.
inline constexpr int64_t smallCPUKernel = 4000;

#define GEN_PASS_DECL
#include "lib/Conversion/MegakernelToCPU/MegakernelToCPU.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Conversion/MegakernelToCPU/MegakernelToCPU.h.inc"

} // namespace mlir::megakernel

#endif
