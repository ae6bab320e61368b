//===- GridPlanner.cpp - how many CTAs, and which tiles -------------------===//

#include "lib/Scheduling/GridPlanner.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <numeric>

using namespace trainkernel;

static int64_t product(llvm::ArrayRef<int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t(1), std::multiplies<int64_t>());
}

// Elements per tile of a pointwise op: a CTA's threads take 16 bytes each; a CPU worker takes what fits in L1.
static int64_t pointwiseElements(const TargetFacts &target) {
  return target.kind == TargetKind::Cpu ? 4096 : target.threads * 4;
}

TileCost trainkernel::predictOp(const OpModel &op, const OpPlan &plan, const TargetFacts &target, int64_t busy) {
  if (op.kind == OpModel::Contraction)
    return predictTile(op.contraction, plan.tile, target, busy);
  // Two dependent round trips: operands, and for a reduction the meeting of its parts.
  TileCost cost;
  cost.latency = 2 * target.loadLatency;
  cost.operands = double(op.bytes) / std::max<int64_t>(1, plan.tiles) * target.timePerByte;
  return cost;
}

static Sizes chooseSizes(const OpModel &op, const TargetFacts &target) {
  int64_t outputs = product(op.shape), perTile = pointwiseElements(target);
  if (op.kind == OpModel::Reduction)
    perTile = reductionOutputsPerTile(outputs, op.reduced, op.reducesContiguous, target);
  return chooseElementTile(op.shape, perTile);
}

static OpPlan planOp(const OpModel &op, const TargetFacts &target, int64_t processors) {
  OpPlan plan;
  if (op.kind == OpModel::Contraction) {
    plan.tile = op.isFixed ? op.fixedTile : chooseContractionTile(op.contraction, target, processors);
    plan.tiles = countTiles(op.contraction, plan.tile);
  } else {
    plan.sizes = op.isFixed ? op.fixedSizes : chooseSizes(op, target);
    plan.tiles = countTiles(op.shape, plan.sizes);
  }
  plan.cost = predictOp(op, plan, target, std::min(plan.tiles, processors));
  return plan;
}

TileCost trainkernel::predictPhase(llvm::ArrayRef<PlacedTiles> ops, int64_t grid) {
  llvm::SmallVector<TileCost> busy(grid);
  for (const PlacedTiles &op : ops) {
    TileCost ofAll = op.cost.times(op.tiles / grid);
    for (TileCost &cost : busy)
      cost += ofAll;
    for (int64_t rest = op.tiles % grid, cta = op.first % grid; rest > 0; --rest, cta = (cta + 1) % grid)
      busy[cta] += op.cost;
  }
  return *std::max_element(busy.begin(), busy.end(),
                           [](const TileCost &a, const TileCost &b) { return a.total() < b.total(); });
}

// With the tiles of the ops dealt out one after the other.
static double predictPhase(llvm::ArrayRef<OpPlan> plans, int64_t grid) {
  llvm::SmallVector<PlacedTiles> placed;
  int64_t first = 0;
  for (const OpPlan &plan : plans) {
    placed.push_back({plan.tiles, first, plan.cost});
    first += plan.tiles;
  }
  return trainkernel::predictPhase(placed, grid).total();
}

double trainkernel::predictLaunch(const TargetFacts &target, int64_t grid, int64_t cluster) {
  return grid == cluster ? target.clusterLaunch : target.gridLaunch;
}

using OpPlans = llvm::SmallVector<OpPlan>;

// Each op on its share of the CTAs, by the time that it would take on all of them.
static OpPlans planShares(llvm::ArrayRef<const OpModel *> ops, const TargetFacts &target, int64_t grid,
                          const OpPlans &onAll) {
  auto timeOf = [](const OpPlan &plan) { return plan.tiles * plan.cost.total(); };
  double total = 0;
  for (const OpPlan &plan : onAll)
    total += timeOf(plan);
  OpPlans plans;
  for (auto [op, plan] : llvm::zip(ops, onAll))
    plans.push_back(planOp(*op, target, std::max<int64_t>(1, grid * timeOf(plan) / total)));
  return plans;
}

static OpPlans planPhase(llvm::ArrayRef<const OpModel *> ops, const TargetFacts &target, int64_t grid) {
  OpPlans onAll;
  for (const OpModel *op : ops)
    onAll.push_back(planOp(*op, target, grid));
  if (ops.size() < 2 || target.kind == TargetKind::Cpu)
    return onAll;
  OpPlans shares = planShares(ops, target, grid, onAll);
  return predictPhase(shares, grid) < predictPhase(onAll, grid) ? shares : onAll;
}

// Where `cluster` is 0, a grid that can be one cluster is one.
static GridPlan planFor(llvm::ArrayRef<OpModel> ops, const TargetFacts &target, int64_t grid, int64_t cluster) {
  GridPlan plan;
  plan.grid = grid;
  plan.cluster = cluster > 0 ? cluster : grid <= target.maxCluster ? grid : 1;
  plan.ops.resize(ops.size());
  unsigned numPhases = 0;
  for (const OpModel &op : ops)
    numPhases = std::max(numPhases, op.phase + 1);
  for (unsigned phase = 0; phase < numPhases; ++phase) {
    llvm::SmallVector<const OpModel *> members;
    for (const OpModel &op : ops)
      if (op.phase == phase)
        members.push_back(&op);
    OpPlans plans = planPhase(members, target, grid);
    plan.phaseTimes.push_back(predictPhase(plans, grid));
    for (auto [op, opPlan] : llvm::zip(members, plans))
      plan.ops[op - ops.begin()] = opPlan;
  }
  bool isOneCluster = plan.cluster == grid;
  double barrier = grid == 1 ? target.ctaBarrier : isOneCluster ? target.clusterBarrier : target.gridBarrier;
  plan.time = predictLaunch(target, plan.grid, plan.cluster);
  for (double time : plan.phaseTimes)
    plan.time += time;
  plan.time += barrier * (plan.phaseTimes.empty() ? 0 : plan.phaseTimes.size() - 1);
  return plan;
}

std::string trainkernel::findFault(const OpModel &op, const TargetFacts &target) {
  if (op.kind == OpModel::Contraction)
    return findFault(op.contraction, op.fixedTile, target);
  // Each result of a tile has threads of its own.
  if (op.kind == OpModel::Reduction && target.kind == TargetKind::Cuda && product(op.fixedSizes) > target.threads)
    return "expected at most " + std::to_string(target.threads) + " results in a tile";
  return "";
}

// No more CTAs than the busiest phase has tiles.
static void dropIdle(GridPlan &plan, llvm::ArrayRef<OpModel> ops) {
  int64_t most = 1;
  for (unsigned phase = 0; phase < plan.phaseTimes.size(); ++phase) {
    int64_t tiles = 0;
    for (auto [op, opPlan] : llvm::zip(ops, plan.ops))
      tiles += op.phase == phase ? opPlan.tiles : 0;
    most = std::max(most, tiles);
  }
  if (plan.cluster == 1)
    plan.grid = std::min(plan.grid, most);
}

// The grids that are worth a try; only those of whole clusters.
static llvm::SmallVector<int64_t> candidateGrids(const TargetFacts &target, int64_t cluster) {
  int64_t unit = std::max<int64_t>(1, cluster);
  llvm::SmallVector<int64_t> grids = {std::max(unit, target.processors / unit * unit)};
  if (target.kind == TargetKind::Cuda)
    for (int64_t grid = 1; grid <= target.maxCluster; grid *= 2)
      if (grid % unit == 0)
        grids.push_back(grid);
  if (!llvm::is_contained(grids, unit) && cluster > 0)
    grids.push_back(unit);
  return grids;
}

GridPlan trainkernel::planGrid(llvm::ArrayRef<OpModel> ops, const TargetFacts &target, int64_t grid, int64_t cluster) {
  llvm::SmallVector<int64_t> grids = {grid};
  if (grid == 0)
    grids = candidateGrids(target, cluster);
  GridPlan best;
  llvm::SmallVector<Candidate> considered;
  for (int64_t candidate : grids) {
    GridPlan plan = planFor(ops, target, candidate, cluster);
    if (grid == 0 && target.kind == TargetKind::Cuda)
      dropIdle(plan, ops);
    considered.push_back({plan.grid, plan.cluster, plan.time});
    if (best.ops.empty() || plan.time < best.time)
      best = plan;
  }
  best.considered = considered;
  return best;
}
