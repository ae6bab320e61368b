//===- PredictTimes.cpp - how long each part of a schedule takes ----------===//

#include "lib/Transforms/PredictTimes/PredictTimes.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/Costs.h"
#include "lib/Analysis/TileChoice.h"
#include "lib/Scheduling/GridPlanner.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKPREDICTTIMES
#include "lib/Transforms/PredictTimes/PredictTimes.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

namespace {
struct PredictTimesPass : public megakernel::impl::TkPredictTimesBase<PredictTimesPass> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    std::optional<TargetFacts> facts = findTarget(kernel.getTarget().value_or(""));
    if (!facts)
      return;
    Builder builder(&getContext());
    int64_t launch = toNanoseconds(predictLaunch(*facts, kernel.getGrid(), kernel.getCluster())), total = launch;
    unsigned number = 0;
    for (Operation &op : kernel.getBody().front()) {
      if (auto phase = dyn_cast<PhaseOp>(op)) {
        CostAttr cost = predict(phase, number++, kernel.getGrid(), *facts);
        phase.setPredictedAttr(cost);
        total += cost.total();
      } else if (auto barrier = dyn_cast<BarrierOp>(op)) {
        int64_t time = toNanoseconds(timeOf(barrier.getScope(), *facts));
        barrier.setPredictedNsAttr(builder.getI64IntegerAttr(time));
        total += time;
      }
    }
    kernel.setLaunchNsAttr(builder.getI64IntegerAttr(launch));
    kernel.setPredictedNsAttr(builder.getI64IntegerAttr(total));
  }

private:
  static double timeOf(Scope scope, const TargetFacts &facts) {
    switch (scope) {
    case Scope::Cta:
      return facts.ctaBarrier;
    case Scope::Cluster:
      return facts.clusterBarrier;
    case Scope::Grid:
      return facts.gridBarrier;
    }
    return 0;
  }

  CostAttr predict(PhaseOp phase, unsigned number, int64_t grid, const TargetFacts &facts) {
    SmallVector<PlacedTiles> placed;
    for (auto tile : phase.getBody().front().getOps<TileOp>()) {
      OpModel model = modelOf(tile.getBody(), number);
      OpPlan plan = planOf(tile.getBody(), model, tile.getSizes());
      if (!tile.getPredicted())
        tile.setPredictedAttr(
            costAttr(&getContext(), predictOp(model, plan, facts, std::min<int64_t>(plan.tiles, grid))));
      placed.push_back({plan.tiles, static_cast<int64_t>(tile.getFirstCta()), costOf(*tile.getPredicted())});
    }
    return costAttr(&getContext(), predictPhase(placed, grid));
  }
};
} // namespace
