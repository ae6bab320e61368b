//===- NearCosts.cpp - what reading nearby saves --------------------------===//

#include "lib/Analysis/NearCosts.h"

#include "lib/Analysis/OnChip.h"
#include "lib/Analysis/Sources.h"
#include "lib/Analysis/TileGeometry.h"

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

static double bytesOf(const ContractionPlan &plan, OpOperand *operand, unsigned loop) {
  double perElement = std::max<int64_t>(1, bytesPerElement(sourcesOf(operand->get())));
  return perElement * plan.ownSizeOf(loop) * plan.sizeOf(plan.kLoop);
}

static TileCost nearProduct(const ContractionPlan &plan, TileCost cost, const TargetFacts &facts) {
  double a = bytesOf(plan, plan.aOperand, plan.mLoop), b = bytesOf(plan, plan.bOperand, plan.nLoop);
  double far = (plan.rowsAt ? 0 : a) + (plan.reusesKept ? 0 : b);
  cost.operands *= far / (a + b);
  if (far == 0)
    cost.latency = 2 * facts.sharedLatency;
  cost.multiply = plan.numChunks * (plan.layout.passCycles / facts.clock + 2 * facts.ctaBarrier);
  return cost;
}

TileCost mlir::megakernel::withNearOperands(KernelOp kernel, TileOp tile, const TileCost &cost,
                                            const TargetFacts &facts) {
  if (facts.kind != TargetKind::Cuda)
    return cost;
  TileGeometry geometry(tile);
  if (geometry.region.isContraction()) {
    ContractionPlan plan(geometry, kernel.getThreads());
    return plan.rowsAt || plan.reusesKept ? nearProduct(plan, cost, facts) : cost;
  }
  // A single number comes along with others.
  bool isNear = llvm::all_of(tile.getInputs(), [](Value input) {
    return onChipBufferOf(input) || cast<MemRefType>(input.getType()).getNumElements() == 1;
  });
  if (!isNear || llvm::none_of(tile.getInputs(), [](Value input) { return onChipBufferOf(input); }))
    return cost;
  TileCost near = cost;
  near.latency = 2 * facts.sharedLatency;
  near.operands = cost.operands / facts.timePerByte / sharedBytesPerCycle / facts.clock;
  return near;
}
