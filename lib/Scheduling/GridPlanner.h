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
  llvm::SmallVector<OpModel, 0> ops;
  llvm::SmallVector<Dependence> dependences;
  /// (a, b): b overwrites what a reads. See `PhaseProblem`.
  llvm::SmallVector<std::pair<unsigned, unsigned>> preferences;
};

/// Ops whose rows stay on the CTAs that own them.
struct RowChain {
  RowBlocks rows;
  llvm::SmallVector<unsigned> ops;
};

/// A plan that the planner tried, with its predicted time in microseconds.
struct Candidate {
  int64_t grid, cluster;
  double time;
};

struct GridPlan {
  int64_t grid = 1, cluster = 1;
  llvm::SmallVector<OpPlan> ops;
  llvm::SmallVector<PhasePlace> places;
  /// For each op, the level that begins once all that the op reads of others is there.
  llvm::SmallVector<unsigned> readyLevels;
  /// Predicted times in microseconds: of each level without barriers, and of all with barriers and launch.
  llvm::SmallVector<double> levelTimes;
  double time = 0;
  /// All plans that were tried, this one included.
  llvm::SmallVector<Candidate> considered;
};

/// Predicts the time of a step on a grid, with some chains of ops in rows.
class GridModel {
public:
  /// With `repeats` the step is one of many in a launch.
  GridModel(const StepModel &step, OpPlanner &planner, const TargetFacts &target, int64_t grid, int64_t cluster,
            bool repeats = false);

  /// The final plan of a grid is worth more thought than each of the many that are tried.
  GridPlan plan(llvm::ArrayRef<RowChain> chains, bool isFinal = false) const;

  const StepModel &step;
  OpPlanner &planner;
  const TargetFacts &target;
  const int64_t grid;

private:
  PhaseProblem problemOf(llvm::ArrayRef<RowChain> chains) const;
  OpPlan planOn(unsigned op, int64_t processors) const;
  void placeInTurn(llvm::ArrayRef<unsigned> ops, llvm::MutableArrayRef<OpPlan> plans, int64_t first) const;
  double placeWell(llvm::ArrayRef<unsigned> ops, llvm::MutableArrayRef<OpPlan> plans, llvm::ArrayRef<double> tileTimes,
                   llvm::MutableArrayRef<double> busy) const;
  void placeChain(GridPlan &plan, const RowChain &chain, int64_t firstCta) const;
  void keepOperands(GridPlan &plan, const RowChain &chain) const;
  void planLevel(GridPlan &plan, llvm::ArrayRef<unsigned> free, int64_t firstFree) const;
  void improveLevel(GridPlan &plan, llvm::ArrayRef<unsigned> members, llvm::ArrayRef<unsigned> free) const;
  double barrierTime() const;
  double timeBehindBarrier(const GridPlan &plan, unsigned op, const OpPlan &own) const;
  llvm::SmallVector<double> timesBehindBarrier(const GridPlan &plan, llvm::ArrayRef<unsigned> ops,
                                               llvm::ArrayRef<OpPlan> plans) const;
  double predictLevel(const GridPlan &plan, llvm::ArrayRef<unsigned> members) const;

  int64_t cluster;
  bool repeats;
};

/// The chains with which the step is predicted to be fastest.
llvm::SmallVector<RowChain> searchRowChains(const GridModel &model);

/// The plan with the least predicted time; with `grid` CTAs, and clusters of `cluster`, where these are not 0. The grid
/// is a multiple of the cluster.
GridPlan planGrid(const StepModel &step, const TargetFacts &target, int64_t grid = 0, int64_t cluster = 0);

/// Plans for launches of one step and of several that add everything up in the same order.
struct PlanPair {
  GridPlan one, several;
};

/// A pair where launches of several steps are faster than they would be with `one`, the plan for one step, and those of
/// one step about as fast as with it; nothing where there is none.
std::optional<PlanPair> planRepeated(const StepModel &step, const TargetFacts &target, const GridPlan &one);

/// Times of a launch and of a barrier that joins several CTAs, in one cluster or in the grid.
double predictLaunch(const TargetFacts &target, bool isOneCluster);
double predictBarrier(const TargetFacts &target, bool isCluster);

} // namespace trainkernel

#endif
