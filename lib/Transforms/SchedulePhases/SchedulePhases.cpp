//===- SchedulePhases.cpp - from a fused step to phases -------------------===//

#include "lib/Transforms/SchedulePhases/SchedulePhases.h"

#include "lib/Scheduling/TargetTable.h"
#include "lib/Transforms/SchedulePhases/KernelBuilder.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKSCHEDULEPHASES
#include "lib/Transforms/SchedulePhases/SchedulePhases.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

namespace {
struct SchedulePhasesPass : public megakernel::impl::TkSchedulePhasesBase<SchedulePhasesPass> {
  using TkSchedulePhasesBase::TkSchedulePhasesBase;

  void runOnOperation() override {
    std::optional<trainkernel::TargetFacts> facts = trainkernel::findTarget(target);
    if (!facts) {
      getOperation().emitError() << "unknown target '" << target << "', expected one of " << trainkernel::listTargets();
      return signalPassFailure();
    }
    if (grid < 0 || grid > trainkernel::mostCtas(*facts)) {
      getOperation().emitError() << "grid is " << static_cast<int64_t>(grid) << ", expected 0 to "
                                 << trainkernel::mostCtas(*facts) << " CTAs, which run at once on " << target;
      return signalPassFailure();
    }
    if (getOperation().getOps<StepOp>().empty()) {
      getOperation().emitError("holds no 'megakernel.step', expected 'tk-import' to have run");
      return signalPassFailure();
    }
    for (auto step : llvm::make_early_inc_range(getOperation().getOps<StepOp>())) {
      FailureOr<PlanOverrides> overrides = readOverrides(step, *facts);
      if (failed(overrides) || failed(buildKernel(step, *facts, *overrides, oneKernel)))
        return signalPassFailure();
    }
  }

private:
  FailureOr<PlanOverrides> readOverrides(StepOp step, const trainkernel::TargetFacts &facts) {
    FailureOr<PlanOverrides> overrides = PlanOverrides::parse(step, plan);
    if (failed(overrides))
      return failure();
    if (grid > 0 && overrides->grid > 0 && overrides->grid != grid)
      return step.emitError() << "the plan's grid is " << overrides->grid << ", but the option 'grid' is "
                              << static_cast<int64_t>(grid) << ", expected one of them";
    if (grid > 0)
      overrides->grid = grid;
    if (failed(overrides->verifyLaunch(step, facts)))
      return failure();
    return overrides;
  }
};
} // namespace
