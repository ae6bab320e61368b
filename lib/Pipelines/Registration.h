//===- Registration.h - everything a tool must know -------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_PIPELINES_REGISTRATION_H
#define TRAINKERNEL_LIB_PIPELINES_REGISTRATION_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mlir::megakernel {

/// Registers our dialect and all upstream ones, with their extensions and translations.
void registerDialects(DialectRegistry &registry);
/// Registers our passes, our named pipelines and all upstream passes.
void registerPasses();

} // namespace mlir::megakernel

#endif
