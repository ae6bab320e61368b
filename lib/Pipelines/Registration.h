//===- Registration.h - everything a tool must know -------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_PIPELINES_REGISTRATION_H
#define TRAINKERNEL_LIB_PIPELINES_REGISTRATION_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mlir::megakernel {

/// Registers our dialect and the upstream ones that it is used with, with their interfaces and translations.
void registerDialects(DialectRegistry &registry);
/// Registers our passes, our named pipelines and the upstream passes that they hold.
void registerPasses();
/// Registers our passes and our named pipelines, for a program that has the upstream ones. Once only in a process.
void registerOwnPasses();

} // namespace mlir::megakernel

#endif
