//===- Describe.h - a kernel's part of the manifest -------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_CONVERSION_COMMON_DESCRIBE_H
#define TRAINKERNEL_LIB_CONVERSION_COMMON_DESCRIBE_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/IR/BuiltinOps.h"

namespace mlir::megakernel {

/// What a launch of the kernel needs beside its geometry.
struct LaunchNeeds {
  int64_t sharedBytes, workspaceBytes;
  /// The kernel itself waits for the launches before it.
  bool overlapsLaunches = false;
  /// The function that runs several steps; none where empty.
  std::string repeated = {};
};

/// Adds the key "kernel" (symbol, geometry, workspace, schedule ledger) to the module's manifest attribute, and to its
/// key "numerics" how float32 products are computed. Fails
/// where the manifest that is there is no JSON object.
LogicalResult describeKernel(ModuleOp module, KernelOp kernel, const LaunchNeeds &needs);

} // namespace mlir::megakernel

#endif
