//===- SharedMemory.h - checks of shared memory -----------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_CHECKSCHEDULE_SHAREDMEMORY_H
#define TRAINKERNEL_LIB_TRANSFORMS_CHECKSCHEDULE_SHAREDMEMORY_H

#include "dialects/Megakernel/MegakernelDialect.h"

namespace mlir::megakernel {

/// An error that names what matters of an op, instead of printing it.
InFlightDiagnostic errorAt(Operation *op);

/// An argument by its path in the user's arguments or result, a buffer by its type and place.
std::string nameOf(KernelOp kernel, Value memory);

/// Checks what CTAs keep in their shared memory: operands of contractions, and buffers.
LogicalResult checkSharedMemory(KernelOp kernel);

} // namespace mlir::megakernel

#endif
