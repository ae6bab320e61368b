//===- PlanOverrides.h - what a user decides instead of the planner -*- C++ -*-===//

#ifndef TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_PLANOVERRIDES_H
#define TRAINKERNEL_LIB_TRANSFORMS_SCHEDULEPHASES_PLANOVERRIDES_H

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/GridPlanner.h"

namespace mlir::megakernel {

/// Tile sizes of one op, or the CTA of its first tile. The op is named as in the report: by its phase and its place in
/// it.
struct OpOverride {
  unsigned phase, op;
  /// Empty where it is the CTA that is given.
  SmallVector<int64_t> sizes;
  int64_t firstCta = 0;

  /// As it is written: `tile[3.0]=64x64x256` or `cta[3.0]=8`.
  std::string str() const;
};

struct PlanOverrides {
  /// 0 where the planner chooses.
  int64_t grid = 0, cluster = 0;
  SmallVector<OpOverride> ops;

  bool empty() const { return grid == 0 && cluster == 0 && ops.empty(); }
  /// All of them as they are written.
  std::string str() const;

  /// Reads `grid=16,cluster=16,tile[3.0]=64x64x256,cta[3.0]=8`; reports what it cannot read at `step`.
  static FailureOr<PlanOverrides> parse(Operation *step, StringRef text);
  /// Reports a grid or a cluster that the target cannot run.
  LogicalResult verifyLaunch(Operation *step, const trainkernel::TargetFacts &target) const;
};

/// Fixes the op that runs as `model` to what `given` says; reports sizes that no code can be made for.
LogicalResult fixOp(FusedOp op, trainkernel::OpModel &model, const OpOverride &given,
                    const trainkernel::TargetFacts &target);

/// Tile sizes as they are written: `64x64x256`.
std::string writeSizes(ArrayRef<int64_t> sizes);

} // namespace mlir::megakernel

#endif
