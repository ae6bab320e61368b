//===- PredictTimes.h ------------------------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_PREDICTTIMES_H
#define TRAINKERNEL_LIB_TRANSFORMS_PREDICTTIMES_H

#include "mlir/Pass/Pass.h"

namespace mlir::megakernel {

#define GEN_PASS_DECL
#include "lib/Transforms/PredictTimes/PredictTimes.h.inc"
#define GEN_PASS_REGISTRATION
#include "lib/Transforms/PredictTimes/PredictTimes.h.inc"

} // namespace mlir::megakernel

#endif
