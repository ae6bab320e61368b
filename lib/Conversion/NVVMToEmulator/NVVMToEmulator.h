//===- NVVMToEmulator.h ----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_NVVMTOEMULATOR_H
#define TRAINKERNEL_LIB_CONVERSION_NVVMTOEMULATOR_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Conversion/NVVMToEmulator/NVVMToEmulator.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Conversion/NVVMToEmulator/NVVMToEmulator.h.inc"

} // namespace mlir::megakernel

#endif
