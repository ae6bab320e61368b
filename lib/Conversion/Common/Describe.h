//===- Describe.h - a kernel's part of the manifest -------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_DESCRIBE_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_DESCRIBE_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::megakernel {

/// Adds the key "kernel" (symbol, geometry, workspace, schedule ledger) to the module's manifest attribute. Fails
/// where the manifest that is there is no JSON object.
LogicalResult describeKernel(ModuleOp module, KernelOp kernel, int64_t sharedBytes, int64_t workspaceBytes);

} // namespace mlir::megakernel

#endif
