//===- GridPlanner.cpp - how many CTAs, and which tiles -------------------===//

#include "lib/Scheduling/GridPlanner.h"

#include <algorithm>

using namespace trainkernel;

GridModel::GridModel(const StepModel &step, OpPlanner &planner, const TargetFacts &target, int64_t grid)
    : step(step), planner(planner), target(target), grid(grid), cluster(grid <= target.maxCluster ? grid : 1) {}

// The chain that each op is in, or -1.
static llvm::SmallVector<int> chainsOfOps(size_t numOps, llvm::ArrayRef<RowChain> chains) {
  llvm::SmallVector<int> chainOf(numOps, -1);
  for (size_t chain = 0; chain < chains.size(); ++chain)
    for (unsigned op : chains[chain].ops)
      chainOf[op] = chain;
  return chainOf;
}

PhaseProblem GridModel::problemOf(llvm::ArrayRef<RowChain> chains) const {
  llvm::SmallVector<int> chainOf = chainsOfOps(step.ops.size(), chains);
  PhaseProblem problem;
  problem.numNodes = step.ops.size();
  problem.preferences = step.preferences;
  for (const Dependence &edge : step.dependences) {
    int chain = chainOf[edge.before];
    bool isLocal =
        chain >= 0 && chain == chainOf[edge.after] &&
        std::find(edge.sharedRows.begin(), edge.sharedRows.end(), chains[chain].rows.count) != edge.sharedRows.end();
    problem.dependences.push_back({edge.before, edge.after, isLocal});
  }
  return problem;
}

// Calls `visit` with the CTA of each tile.
static void forEachTile(const OpPlan &plan, int64_t grid, llvm::function_ref<void(int64_t)> visit) {
  for (int64_t tile = 0, rest = plan.tiles % grid; tile < rest; ++tile)
    visit((plan.firstCta + tile) % grid);
}

// The busiest CTA.
static double predictBusiest(llvm::ArrayRef<const OpPlan *> plans, int64_t grid) {
  llvm::SmallVector<double> busy(grid, 0);
  double onAll = 0;
  for (const OpPlan *plan : plans) {
    onAll += plan->tiles / grid * plan->tileTime;
    forEachTile(*plan, grid, [&](int64_t cta) { busy[cta] += plan->tileTime; });
  }
  return onAll + *std::max_element(busy.begin(), busy.end());
}

// Deals the tiles of ops out one after the other.
static void placeInTurn(llvm::MutableArrayRef<OpPlan> plans, int64_t first, int64_t grid) {
  for (OpPlan &plan : plans) {
    plan.firstCta = first % grid;
    first += plan.tiles;
  }
}

static double predictPlaced(llvm::ArrayRef<OpPlan> plans, int64_t grid) {
  llvm::SmallVector<const OpPlan *> all;
  for (const OpPlan &plan : plans)
    all.push_back(&plan);
  return predictBusiest(all, grid);
}

// Plans the ops of a level that are in no chain for the CTAs from `firstFree` on: each for all of them, or each for its
// share, by the time that it would take on all.
void GridModel::planLevel(GridPlan &plan, llvm::ArrayRef<unsigned> free, int64_t firstFree) const {
  int64_t processors = grid - firstFree;
  llvm::SmallVector<OpPlan> onAll, shares;
  double total = 0;
  for (unsigned op : free) {
    onAll.push_back(planner.onCtas(op, processors));
    total += onAll.back().tiles * onAll.back().tileTime;
  }
  placeInTurn(onAll, firstFree, grid);
  if (free.size() > 1 && target.kind == TargetKind::Cuda) {
    for (auto [op, alone] : llvm::zip(free, onAll))
      shares.push_back(planner.onCtas(op, std::max<int64_t>(1, processors * (alone.tiles * alone.tileTime) / total)));
    placeInTurn(shares, firstFree, grid);
    if (predictPlaced(shares, grid) < predictPlaced(onAll, grid))
      onAll = shares;
  }
  for (auto [op, chosen] : llvm::zip(free, onAll))
    plan.ops[op] = chosen;
}

double GridModel::predictLevel(const GridPlan &plan, llvm::ArrayRef<unsigned> members) const {
  llvm::SmallVector<const OpPlan *> plans;
  unsigned depth = 0;
  for (unsigned op : members) {
    plans.push_back(&plan.ops[op]);
    depth = std::max(depth, plan.places[op].depth);
  }
  return predictBusiest(plans, grid) + depth * target.ctaBarrier;
}

GridPlan GridModel::plan(llvm::ArrayRef<RowChain> chains) const {
  GridPlan plan;
  plan.grid = grid;
  plan.cluster = cluster;
  plan.ops.resize(step.ops.size());
  plan.places = schedulePhases(problemOf(chains));
  llvm::SmallVector<int> chainOf = chainsOfOps(step.ops.size(), chains);
  // Each chain has CTAs of its own, as far as there are any.
  int64_t next = 0;
  for (const RowChain &chain : chains) {
    if (next + chain.rows.tiles() > grid)
      next = 0;
    for (unsigned op : chain.ops) {
      plan.ops[op] = *planner.inRows(op, chain.rows);
      plan.ops[op].firstCta = next;
    }
    next += chain.rows.tiles();
  }
  llvm::SmallVector<llvm::SmallVector<unsigned>> levels;
  for (unsigned op = 0; op < step.ops.size(); ++op) {
    if (plan.places[op].level >= levels.size())
      levels.resize(plan.places[op].level + 1);
    levels[plan.places[op].level].push_back(op);
  }
  bool isOneCluster = cluster == grid;
  double barrier =
      grid == 1 ? target.ctaBarrier : target.stragglers + (isOneCluster ? target.clusterBarrier : target.gridBarrier);
  plan.time = isOneCluster ? target.clusterLaunch : target.gridLaunch;
  for (llvm::ArrayRef<unsigned> members : levels) {
    int64_t firstFree = 0;
    llvm::SmallVector<unsigned> free;
    for (unsigned op : members) {
      if (chainOf[op] < 0)
        free.push_back(op);
      else
        firstFree = std::max(firstFree, plan.ops[op].firstCta + plan.ops[op].tiles);
    }
    planLevel(plan, free, firstFree < grid ? firstFree : 0);
    plan.levelTimes.push_back(predictLevel(plan, members));
    plan.time += plan.levelTimes.back();
  }
  plan.time += barrier * (levels.empty() ? 0 : levels.size() - 1);
  return plan;
}

// No more CTAs than the busiest level has tiles.
static void dropIdle(GridPlan &plan) {
  llvm::SmallVector<int64_t> ends(plan.levelTimes.size(), 1);
  for (auto [place, op] : llvm::zip(plan.places, plan.ops))
    ends[place.level] = std::max(ends[place.level], op.firstCta + op.tiles);
  if (plan.cluster == 1 && !ends.empty())
    plan.grid = std::min(plan.grid, *std::max_element(ends.begin(), ends.end()));
}

static GridPlan planOn(const StepModel &step, OpPlanner &planner, const TargetFacts &target, int64_t grid) {
  GridModel model(step, planner, target, grid);
  return model.plan(searchRowChains(model));
}

GridPlan trainkernel::planGrid(const StepModel &step, const TargetFacts &target, int64_t grid) {
  OpPlanner planner(step.ops, target);
  if (grid > 0)
    return planOn(step, planner, target, grid);
  llvm::SmallVector<int64_t> candidates = {target.processors};
  if (target.kind == TargetKind::Cuda)
    for (int64_t cluster = 1; cluster <= target.maxCluster; cluster *= 2)
      candidates.push_back(cluster);
  std::optional<GridPlan> best;
  for (int64_t candidate : candidates) {
    GridPlan plan = planOn(step, planner, target, candidate);
    if (!best || plan.time < best->time)
      best = plan;
  }
  if (target.kind == TargetKind::Cuda)
    dropIdle(*best);
  return *best;
}
