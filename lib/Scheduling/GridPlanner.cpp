//===- GridPlanner.cpp - how many CTAs, and which tiles -------------------===//

#include "lib/Scheduling/GridPlanner.h"
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

static OpPlan planOp(const OpModel &op, const TargetFacts &target, int64_t processors) {
  OpPlan plan;
  if (op.kind == OpModel::Contraction) {
    plan.tile = chooseContractionTile(op.contraction, target, processors);
    plan.tiles = countTiles(op.contraction, plan.tile);
    plan.tileTime = predictTileTime(op.contraction, plan.tile, target, std::min(plan.tiles, processors));
    return plan;
  }
  int64_t outputs = product(op.shape), perTile = pointwiseElements(target);
  if (op.kind == OpModel::Reduction)
    perTile = reductionOutputsPerTile(outputs, op.reduced, op.reducesContiguous, target);
  plan.sizes = chooseElementTile(op.shape, perTile);
  plan.tiles = countTiles(op.shape, plan.sizes);
  // Two dependent round trips: operands, and for a reduction the meeting of its parts.
  plan.tileTime = 2 * target.loadLatency + double(op.bytes) / std::max<int64_t>(1, plan.tiles) * target.timePerByte;
  return plan;
}

// The busiest CTA of a phase, with the tiles of its ops dealt out one after the other.
static double predictPhase(llvm::ArrayRef<OpPlan> plans, int64_t grid) {
  llvm::SmallVector<double> busy(grid, 0);
  int64_t next = 0;
  for (const OpPlan &plan : plans) {
    for (double &time : busy)
      time += plan.tiles / grid * plan.tileTime;
    for (int64_t rest = plan.tiles % grid; rest > 0; --rest, next = (next + 1) % grid)
      busy[next] += plan.tileTime;
  }
  return *std::max_element(busy.begin(), busy.end());
}

using OpPlans = llvm::SmallVector<OpPlan>;

// Each op on its share of the CTAs, by the time that it would take on all of them.
static OpPlans planShares(llvm::ArrayRef<const OpModel *> ops, const TargetFacts &target, int64_t grid,
                          const OpPlans &onAll) {
  auto timeOf = [](const OpPlan &plan) { return plan.tiles * plan.tileTime; };
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

static GridPlan planFor(llvm::ArrayRef<OpModel> ops, const TargetFacts &target, int64_t grid) {
  GridPlan plan;
  plan.grid = grid;
  plan.cluster = grid <= target.maxCluster ? grid : 1;
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
  plan.time = isOneCluster ? target.clusterLaunch : target.gridLaunch;
  for (double time : plan.phaseTimes)
    plan.time += time;
  plan.time += barrier * (plan.phaseTimes.empty() ? 0 : plan.phaseTimes.size() - 1);
  return plan;
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

GridPlan trainkernel::planGrid(llvm::ArrayRef<OpModel> ops, const TargetFacts &target, int64_t grid) {
  if (grid > 0)
    return planFor(ops, target, grid);
  llvm::SmallVector<int64_t> candidates = {target.processors};
  if (target.kind == TargetKind::Cuda)
    for (int64_t cluster = 1; cluster <= target.maxCluster; cluster *= 2)
      candidates.push_back(cluster);
  GridPlan best;
  for (int64_t candidate : candidates) {
    GridPlan plan = planFor(ops, target, candidate);
    if (best.ops.empty() || plan.time < best.time)
      best = plan;
  }
  if (target.kind == TargetKind::Cuda)
    dropIdle(best, ops);
  return best;
}
