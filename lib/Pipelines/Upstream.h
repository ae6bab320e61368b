//===- Upstream.h - what is used of MLIR itself -----------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_PIPELINES_UPSTREAM_H
#define TRAINKERNEL_LIB_PIPELINES_UPSTREAM_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mlir::megakernel {

/// Registers the upstream dialects that steps and kernels are made of, with the interfaces that the pipelines ask
/// for and the translations to LLVM IR.
void registerUpstreamDialects(DialectRegistry &registry);
/// Registers the upstream passes that the pipelines hold, so that a reproducer of a failure can be run, and those
/// that help to read and reduce IR.
void registerUpstreamPasses();

} // namespace mlir::megakernel

#endif
