//===- Costs.h - predicted times as attributes ------------------*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_ANALYSIS_COSTS_H
#define TRAINKERNEL_LIB_ANALYSIS_COSTS_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/TileCost.h"

namespace mlir::megakernel {

/// The whole nanoseconds of the IR.
int64_t toNanoseconds(double microseconds);

CostAttr costAttr(MLIRContext *context, const trainkernel::TileCost &cost);
trainkernel::TileCost costOf(CostAttr attribute);

} // namespace mlir::megakernel

#endif
