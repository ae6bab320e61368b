//===- CPUEntry.h ----------------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_CPUENTRY_H
#define TRAINKERNEL_LIB_CONVERSION_CPUENTRY_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Conversion/CPUEntry/CPUEntry.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Conversion/CPUEntry/CPUEntry.h.inc"

} // namespace mlir::megakernel

#endif
