//===- GridPlanner.h - how many CTAs, and which tiles -----------*- C++ -*-===//
//
// A small step is faster on few CTAs, which synchronise cheaply, a large one on all of them; and a chain of ops whose
// rows do not mix can stay on the CTAs that own the rows, without a barrier of the grid. The planner tries the grids
// that a target can synchronise and such chains, chooses tiles, and predicts the time of the whole step.
//
//===----------------------------------------------------------------------===//

#ifndef TRAINKERNEL_LIB_SCHEDULING_GRIDPLANNER_H
#define TRAINKERNEL_LIB_SCHEDULING_GRIDPLANNER_H

#include "lib/Scheduling/OpPlanner.h"
#include "lib/Scheduling/PhaseScheduler.h"

namespace trainkernel {

/// One op reads what another one makes.
struct Dependence {
  unsigned before = 0, after = 0;
  /// The numbers of rows (see `RowBlocks`) for which each row of `after` reads nothing but the same row of `before`.
  llvm::SmallVector<int64_t, 2> sharedRows;
};

struct StepModel {
  llvm::SmallVector<OpModel> ops;
  llvm::SmallVector<Dependence> dependences;
  /// (a, b): b overwrites what a reads. See `PhaseProblem`.
  llvm::SmallVector<std::pair<unsigned, unsigned>> preferences;
};

/// Ops whose rows stay on the CTAs that own them.
struct RowChain {
  RowBlocks rows;
  llvm::SmallVector<unsigned> ops;
};

struct GridPlan {
  int64_t grid = 1, cluster = 1;
  llvm::SmallVector<OpPlan> ops;
  llvm::SmallVector<PhasePlace> places;
  /// Predicted times in microseconds: of each level without barriers, and of all with barriers and launch.
  llvm::SmallVector<double> levelTimes;
  double time = 0;
};

/// Predicts the time of a step on a grid, with some chains of ops in rows.
class GridModel {
public:
  GridModel(const StepModel &step, OpPlanner &planner, const TargetFacts &target, int64_t grid);

  GridPlan plan(llvm::ArrayRef<RowChain> chains) const;

  const StepModel &step;
  OpPlanner &planner;
  const TargetFacts &target;
  const int64_t grid;

private:
  PhaseProblem problemOf(llvm::ArrayRef<RowChain> chains) const;
  void planLevel(GridPlan &plan, llvm::ArrayRef<unsigned> free, int64_t firstFree) const;
  double predictLevel(const GridPlan &plan, llvm::ArrayRef<unsigned> members) const;

  int64_t cluster;
};

/// The chains with which the step is predicted to be fastest.
llvm::SmallVector<RowChain> searchRowChains(const GridModel &model);

/// The plan with the least predicted time; with `grid` CTAs where that is not 0.
GridPlan planGrid(const StepModel &step, const TargetFacts &target, int64_t grid = 0);

} // namespace trainkernel

#endif
