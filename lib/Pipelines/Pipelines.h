//===- Pipelines.h - the stages as named pipelines --------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_PIPELINES_PIPELINES_H
#define TRAINKERNEL_LIB_PIPELINES_PIPELINES_H

namespace mlir::megakernel {

/// Registers tk-import, tk-fuse, tk-schedule, tk-lower-to-cuda and tk-lower-to-cpu.
void registerPipelines();

} // namespace mlir::megakernel

#endif
