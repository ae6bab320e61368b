//===- EmbedManifest.h -----------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_EMBEDMANIFEST_H
#define TRAINKERNEL_LIB_TRANSFORMS_EMBEDMANIFEST_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/EmbedManifest/EmbedManifest.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/EmbedManifest/EmbedManifest.h.inc"

} // namespace mlir::megakernel

#endif
