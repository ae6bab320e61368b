//===- GridPlanner.h - how many CTAs, and which tiles -----------*- C++ -*-===//
//
// A small step is faster on few CTAs, which synchronise cheaply, a large one on all of them. The planner tries the
// grids that a target can synchronise, chooses tiles for each, and predicts the time of the whole step.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_GRIDPLANNER_H
#define TRAINKERNEL_LIB_SCHEDULING_GRIDPLANNER_H

#include "lib/Scheduling/TileSizes.h"

namespace trainkernel {

/// One op of a schedule, as the planner sees it.
struct OpModel {
  enum Kind { Pointwise, Reduction, Contraction } kind = Pointwise;
  unsigned phase = 0;
  /// The shape of the results, and elements reduced per result.
  Sizes shape;
  int64_t reduced = 1;
  bool reducesContiguous = false;
  /// Bytes that the whole op reads and writes.
  int64_t bytes = 0;
  ContractionShape contraction;
};

struct OpPlan {
  /// For a contraction.
  ContractionTile tile{1, 1, 1};
  /// For any other op: tile sizes over the shape.
  Sizes sizes;
  int64_t tiles = 1;
  double tileTime = 0;
};

struct GridPlan {
  int64_t grid = 1, cluster = 1;
  llvm::SmallVector<OpPlan> ops;
  /// Predicted times in microseconds, without and with barriers and launch.
  llvm::SmallVector<double> phaseTimes;
  double time = 0;
};

/// The plan with the least predicted time; with `grid` CTAs where that is not 0.
GridPlan planGrid(llvm::ArrayRef<OpModel> ops, const TargetFacts &target, int64_t grid = 0);

} // namespace trainkernel

#endif
