//===- Costs.cpp - predicted times as attributes --------------------------===//

#include "lib/Analysis/Costs.h"

#include <cmath>

using namespace mlir;
using namespace mlir::megakernel;
using trainkernel::TileCost;

int64_t mlir::megakernel::toNanoseconds(double microseconds) { return std::llround(microseconds * 1e3); }

CostAttr mlir::megakernel::costAttr(MLIRContext *context, const TileCost &cost) {
  return CostAttr::get(context, toNanoseconds(cost.latency), toNanoseconds(cost.operands), toNanoseconds(cost.multiply),
                       toNanoseconds(cost.epilogue));
}

TileCost mlir::megakernel::costOf(CostAttr attribute) {
  return {attribute.getLatency() / 1e3, attribute.getOperands() / 1e3, attribute.getMultiply() / 1e3,
          attribute.getEpilogue() / 1e3};
}
