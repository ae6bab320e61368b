//===- PredictTimes.cpp - how long each part of a schedule takes ----------===//

#include "lib/Transforms/PredictTimes/PredictTimes.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/Costs.h"
#include "lib/Analysis/NearCosts.h"
#include "lib/Analysis/OnChip.h"
#include "lib/Analysis/TileChoice.h"
#include "lib/Scheduling/GridPlanner.h"

#include <algorithm>
#include <utility>

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKPREDICTTIMES
#include "lib/Transforms/PredictTimes/PredictTimes.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

namespace {
/// The phases between two barriers that join all CTAs. Within, each CTA goes from phase to phase on its own, so that
/// the next such barrier waits for the CTA that is busiest in all of them together.
struct Level {
  SmallVector<PhaseOp> phases;
  /// What each CTA spends in each of the phases.
  SmallVector<SmallVector<TileCost>> costs;

  /// Sets the times of the phases, and returns their sum in nanoseconds.
  int64_t finish(int64_t grid) {
    SmallVector<double> busy(grid, 0);
    for (ArrayRef<TileCost> phase : costs)
      for (auto [time, cost] : llvm::zip(busy, phase))
        time += cost.total();
    size_t busiest = std::max_element(busy.begin(), busy.end()) - busy.begin();
    int64_t total = 0;
    for (auto [phase, ofCtas] : llvm::zip(phases, costs)) {
      phase.setPredictedAttr(costAttr(phase.getContext(), ofCtas[busiest]));
      total += phase.getPredicted()->total();
    }
    return total;
  }
};

struct PredictTimesPass : public megakernel::impl::TkPredictTimesBase<PredictTimesPass> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    std::optional<TargetFacts> facts = findTarget(kernel.getTarget().value_or(""));
    if (!facts)
      return;
    Builder builder(&getContext());
    int64_t grid = kernel.getGrid(), cluster = kernel.getCluster();
    int64_t launch = toNanoseconds(predictLaunch(*facts, grid == cluster)), total = launch;
    Level level;
    for (Operation &op : kernel.getBody().front()) {
      if (auto phase = dyn_cast<PhaseOp>(op)) {
        level.phases.push_back(phase);
        level.costs.push_back(costsOf(phase, grid, *facts));
      } else if (auto barrier = dyn_cast<BarrierOp>(op)) {
        int64_t time = toNanoseconds(timeOf(barrier.getScope(), *facts));
        barrier.setPredictedNsAttr(builder.getI64IntegerAttr(time));
        total += time;
        if (barrier.getScope() == Scope::Grid || (barrier.getScope() == Scope::Cluster && grid == cluster))
          total += std::exchange(level, {}).finish(grid);
      }
    }
    total += level.finish(grid);
    kernel.setLaunchNsAttr(builder.getI64IntegerAttr(launch));
    kernel.setPredictedNsAttr(builder.getI64IntegerAttr(total));
  }

private:
  static double timeOf(Scope scope, const TargetFacts &facts) {
    return scope == Scope::Cta ? facts.ctaBarrier : predictBarrier(facts, scope == Scope::Cluster);
  }

  // What each CTA spends in a phase.
  SmallVector<TileCost> costsOf(PhaseOp phase, int64_t grid, const TargetFacts &facts) {
    SmallVector<TileCost> costs(grid);
    for (auto tile : phase.getBody().front().getOps<TileOp>()) {
      OpModel model = modelOf(tile.getBody());
      OpPlan plan = planOf(tile.getBody(), model, tile.getSizes());
      // A copy is under way while the CTA does something else.
      if (isCopyOntoChip(tile))
        tile.setPredictedAttr(costAttr(&getContext(), TileCost()));
      if (!tile.getPredicted())
        tile.setPredictedAttr(costAttr(&getContext(), predictOp(model, plan, facts, std::min(plan.tiles, grid))));
      TileCost cost = withNearOperands(phase->getParentOfType<KernelOp>(), tile, costOf(*tile.getPredicted()), facts);
      tile.setPredictedAttr(costAttr(&getContext(), cost));
      for (TileCost &ofCta : costs)
        ofCta += cost.times(plan.tiles / grid);
      for (int64_t rest = 0; rest < plan.tiles % grid; ++rest)
        costs[(tile.getFirstCta() + rest) % grid] += cost;
    }
    return costs;
  }
};
} // namespace
