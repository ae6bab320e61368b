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
  /// Tile sizes that the user chose, with `sizes` or `tile` as in OpPlan.
  bool isFixed = false;
  ContractionTile fixedTile{1, 1, 1};
  Sizes fixedSizes;
};

struct OpPlan {
  /// For a contraction.
  ContractionTile tile{1, 1, 1};
  /// For any other op: tile sizes over the shape.
  Sizes sizes;
  int64_t tiles = 1;
  /// Of one tile.
  TileCost cost;
};

/// A plan that the planner tried, with its predicted time in microseconds.
struct Candidate {
  int64_t grid, cluster;
  double time;
};

struct GridPlan {
  int64_t grid = 1, cluster = 1;
  llvm::SmallVector<OpPlan> ops;
  /// Predicted times in microseconds, without and with barriers and launch.
  llvm::SmallVector<double> phaseTimes;
  double time = 0;
  /// All plans that were tried, this one included.
  llvm::SmallVector<Candidate> considered;
};

/// The plan with the least predicted time; with `grid` CTAs, and clusters of `cluster`, where these are not 0. The grid
/// is a multiple of the cluster.
GridPlan planGrid(llvm::ArrayRef<OpModel> ops, const TargetFacts &target, int64_t grid = 0, int64_t cluster = 0);

/// Why code cannot be made for an op with its fixed tile sizes, or nothing. A GPU's shared memory is not looked at.
std::string findFault(const OpModel &op, const TargetFacts &target);

/// What one of `busy` processors spends on one tile of `op`, cut as `plan` says. This is the cost model: all that is
/// said of times is made of it.
TileCost predictOp(const OpModel &op, const OpPlan &plan, const TargetFacts &target, int64_t busy);

/// The tiles of one op on the CTAs of a phase: tile t runs on CTA (first + t) mod grid.
struct PlacedTiles {
  int64_t tiles, first;
  TileCost cost;
};

/// What the busiest CTA of a phase spends.
TileCost predictPhase(llvm::ArrayRef<PlacedTiles> ops, int64_t grid);

/// Time of a launch.
double predictLaunch(const TargetFacts &target, int64_t grid, int64_t cluster);

} // namespace trainkernel

#endif
