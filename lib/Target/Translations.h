//===- Translations.h - from lowered IR to target code ----------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TARGET_TRANSLATIONS_H
#define TRAINKERNEL_LIB_TARGET_TRANSLATIONS_H

namespace mlir::megakernel {

/// Registers --tk-to-ptx.
void registerToPTX();
/// Registers --tk-to-object.
void registerToObject();

} // namespace mlir::megakernel

#endif
