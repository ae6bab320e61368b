//===- MegakernelToGPU.h ---------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_H
#define TRAINKERNEL_LIB_CONVERSION_MEGAKERNELTOGPU_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

/// Width of an index in the kernel. No buffer of a step has 2^31 elements, and wider indices would double the integer
/// work. Whoever lowers the result of this conversion uses the same width.
inline constexpr unsigned kernelIndexBits = 32;

#define GEN_PASS_DECL
#include "lib/Conversion/MegakernelToGPU/MegakernelToGPU.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Conversion/MegakernelToGPU/MegakernelToGPU.h.inc"

} // namespace mlir::megakernel

#endif
