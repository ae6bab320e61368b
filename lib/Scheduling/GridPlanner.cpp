//===- GridPlanner.cpp - how many CTAs, and which tiles -------------------===//

#include "lib/Scheduling/GridPlanner.h"

#include "lib/Scheduling/ThreadLayout.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

using namespace trainkernel;

// Where `cluster` is 0, a grid that can be one cluster is one.
GridModel::GridModel(const StepModel &step, OpPlanner &planner, const TargetFacts &target, int64_t grid,
                     int64_t cluster, bool repeats)
    : step(step), planner(planner), target(target), grid(grid), cluster(cluster > 0                 ? cluster
                                                                        : grid <= target.maxCluster ? grid
                                                                                                    : 1),
      repeats(repeats) {}

double trainkernel::predictLaunch(const TargetFacts &target, bool isOneCluster) {
  return isOneCluster ? target.clusterLaunch : target.gridLaunch;
}

double trainkernel::predictBarrier(const TargetFacts &target, bool isCluster) {
  return target.stragglers + (isCluster ? target.clusterBarrier : target.gridBarrier);
}

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

// One CTA alone has all that it made on chip, as far as that fits: it is at hand. So is, in a launch of several steps,
// the state: what depends on no other op is under way early. (Of readme_64 and gradient_mlp on one CTA this
// predicts 3.3 and 4.5 us a step, and they take 1.8 and 3.6.)
OpPlan GridModel::planOn(unsigned op, int64_t processors) const {
  OpPlan plan = planner.onCtas(op, processors);
  const OpModel &model = step.ops[op];
  if (grid > 1 || target.kind != TargetKind::Cuda || model.readsInputs || (model.readsState && !repeats))
    return plan;
  plan.cost.latency = std::min(plan.cost.latency, 2 * target.sharedLatency);
  plan.cost.operands = plan.cost.operands / target.timePerByte / sharedBytesPerCycle / target.clock;
  plan.tileTime = plan.cost.total();
  return plan;
}

// Deals the tiles of ops out one after the other, but for those that have their place.
void GridModel::placeInTurn(llvm::ArrayRef<unsigned> ops, llvm::MutableArrayRef<OpPlan> plans, int64_t first) const {
  for (auto [op, plan] : llvm::zip(ops, plans)) {
    int64_t fixed = step.ops[op].fixedCta;
    plan.firstCta = (fixed >= 0 ? fixed : first) % grid;
    first += plan.tiles;
  }
}

// Adds the time of a tile to `count` CTAs from `first` on. This is the planner's innermost loop, so it counts around
// without a division.
static void occupy(llvm::MutableArrayRef<double> busy, int64_t first, int64_t count, double time) {
  int64_t grid = busy.size();
  for (int64_t cta = first % grid; count > 0; --count) {
    busy[cta] += time;
    cta = cta + 1 == grid ? 0 : cta + 1;
  }
}

// The busiest CTA. A tile of each op takes what `tileTimes` says.
static double predictPlaced(llvm::ArrayRef<OpPlan> plans, llvm::ArrayRef<double> tileTimes, int64_t grid) {
  llvm::SmallVector<double> busy(grid, 0);
  double onAll = 0;
  for (auto [plan, time] : llvm::zip(plans, tileTimes)) {
    onAll += plan.tiles / grid * time;
    occupy(busy, plan.firstCta, plan.tiles % grid, time);
  }
  return onAll + *std::max_element(busy.begin(), busy.end());
}

// Plans the ops of a level that are in no chain for the CTAs from `firstFree` on: each for all of them, or each for its
// share, by the time that it would take on all.
void GridModel::planLevel(GridPlan &plan, llvm::ArrayRef<unsigned> free, int64_t firstFree) const {
  int64_t processors = grid - firstFree;
  llvm::SmallVector<OpPlan> onAll, shares;
  for (unsigned op : free)
    onAll.push_back(planOn(op, processors));
  placeInTurn(free, onAll, firstFree);
  llvm::SmallVector<double> times = timesBehindBarrier(plan, free, onAll);
  double total = 0;
  for (auto [own, time] : llvm::zip(onAll, times))
    total += own.tiles * time;
  if (free.size() > 1 && total > 0 && target.kind == TargetKind::Cuda) {
    for (auto [op, own, time] : llvm::zip(free, onAll, times))
      shares.push_back(planOn(op, std::max<int64_t>(1, processors * (own.tiles * time) / total)));
    placeInTurn(free, shares, firstFree);
    if (predictPlaced(shares, timesBehindBarrier(plan, free, shares), grid) < predictPlaced(onAll, times, grid))
      onAll = shares;
  }
  for (auto [op, chosen] : llvm::zip(free, onAll))
    plan.ops[op] = chosen;
}

// Places ops, those that take longest first, where the busiest CTA is then the least busy.
double GridModel::placeWell(llvm::ArrayRef<unsigned> ops, llvm::MutableArrayRef<OpPlan> plans,
                            llvm::ArrayRef<double> tileTimes, llvm::MutableArrayRef<double> busy) const {
  llvm::SmallVector<unsigned> order(plans.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](unsigned a, unsigned b) { return tileTimes[a] > tileTimes[b]; });
  for (unsigned op : order) {
    int64_t fixed = step.ops[ops[op]].fixedCta;
    int64_t rest = plans[op].tiles % grid, best = fixed >= 0 ? fixed % grid : 0;
    double least = std::numeric_limits<double>::infinity();
    for (int64_t first = 0; rest > 0 && first < grid; ++first) {
      if (fixed >= 0 && first != fixed % grid)
        continue;
      double busiest = 0;
      for (int64_t i = 0; i < rest && busiest < least; ++i)
        busiest = std::max(busiest, busy[(first + i) % grid]);
      if (busiest < least) {
        least = busiest;
        best = first;
      }
    }
    plans[op].firstCta = best;
    for (int64_t cta = 0; cta < grid; ++cta)
      busy[cta] += plans[op].tiles / grid * tileTimes[op];
    occupy(busy, best, rest, tileTimes[op]);
  }
  return *std::max_element(busy.begin(), busy.end());
}

// Cuts the ops of a level that are in no chain for other parts of the CTAs, one after the other, and places all of them
// anew, where that makes the busiest CTA less busy.
void GridModel::improveLevel(GridPlan &plan, llvm::ArrayRef<unsigned> members, llvm::ArrayRef<unsigned> free) const {
  constexpr int64_t parts = 8;
  constexpr size_t manyOps = 16;
  if (free.size() > manyOps)
    return;
  llvm::SmallVector<double> busy(grid, 0);
  for (unsigned op : members)
    if (!llvm::is_contained(free, op))
      occupy(busy, plan.ops[op].firstCta, plan.ops[op].tiles, timeBehindBarrier(plan, op, plan.ops[op]));
  llvm::SmallVector<OpPlan> best;
  for (unsigned op : free)
    best.push_back(plan.ops[op]);
  auto place = [&](llvm::MutableArrayRef<OpPlan> plans) {
    llvm::SmallVector<double> load(busy);
    return placeWell(free, plans, timesBehindBarrier(plan, free, plans), load);
  };
  double least = place(best);
  for (auto [number, op] : llvm::enumerate(free))
    for (int64_t part = 1; part <= parts; ++part) {
      llvm::SmallVector<OpPlan> changed = best;
      changed[number] = planOn(op, std::max<int64_t>(1, grid * part / parts));
      if (changed[number].tiles == best[number].tiles)
        continue;
      if (double time = place(changed); time < least) {
        least = time;
        best = changed;
      }
    }
  for (auto [op, chosen] : llvm::zip(free, best))
    plan.ops[op] = chosen;
}

double GridModel::barrierTime() const {
  return grid == 1 ? target.ctaBarrier : predictBarrier(target, cluster == grid);
}

// What a tile takes of the time after the barrier ahead of its level. While the CTA waits, operands from arguments are
// on their way, and all is computed of inputs that are there.
double GridModel::timeBehindBarrier(const GridPlan &plan, unsigned op, const OpPlan &own) const {
  PhasePlace place = plan.places[op];
  if (place.level == 0 || place.depth > 0)
    return own.tileTime;
  bool isReady = step.ops[op].kind == OpModel::Contraction && target.kind == TargetKind::Cuda && own.tiles <= grid &&
                 plan.readyLevels[op] < place.level;
  // A CTA that comes last waits for the barrier alone.
  double wait = cluster == grid ? target.clusterBarrier : target.gridBarrier;
  return own.tileTime - (isReady ? std::min(own.tileTime, wait) : std::min(own.operandTime, barrierTime()));
}

llvm::SmallVector<double> GridModel::timesBehindBarrier(const GridPlan &plan, llvm::ArrayRef<unsigned> ops,
                                                        llvm::ArrayRef<OpPlan> plans) const {
  llvm::SmallVector<double> times;
  for (auto [op, own] : llvm::zip(ops, plans))
    times.push_back(timeBehindBarrier(plan, op, own));
  return times;
}

double GridModel::predictLevel(const GridPlan &plan, llvm::ArrayRef<unsigned> members) const {
  llvm::SmallVector<OpPlan> plans;
  unsigned depth = 0;
  for (unsigned op : members) {
    plans.push_back(plan.ops[op]);
    depth = std::max(depth, plan.places[op].depth);
  }
  return predictPlaced(plans, timesBehindBarrier(plan, members, plans), grid) + depth * target.ctaBarrier;
}

// Operands that several ops of a chain share are brought in once: those that save the most first, as far as shared
// memory holds them.
void GridModel::keepOperands(GridPlan &plan, const RowChain &chain) const {
  std::map<int, llvm::SmallVector<unsigned>> sharers;
  int64_t left = target.sharedBytes;
  for (unsigned op : chain.ops) {
    left = std::min(left, target.sharedBytes - plan.ops[op].ownBytes);
    if (step.ops[op].sharedOperand >= 0 && plan.ops[op].keptBytes > 0)
      sharers[step.ops[op].sharedOperand].push_back(op);
  }
  llvm::SmallVector<llvm::ArrayRef<unsigned>> order;
  for (auto &[operand, ops] : sharers)
    order.push_back(ops);
  auto saved = [&](llvm::ArrayRef<unsigned> ops) { return plan.ops[ops.front()].keptBytes * (ops.size() - 1); };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return saved(a) > saved(b); });
  for (llvm::ArrayRef<unsigned> ops : order) {
    int64_t bytes = plan.ops[ops.front()].keptBytes;
    if (ops.size() < 2 || bytes > left)
      continue;
    left -= bytes;
    unsigned first = *std::min_element(ops.begin(), ops.end(),
                                       [&](unsigned a, unsigned b) { return plan.places[a] < plan.places[b]; });
    for (unsigned op : ops)
      if (op != first) {
        plan.ops[op].tileTime -= plan.ops[op].operandTime;
        plan.ops[op].operandTime = 0;
      }
  }
}

void GridModel::placeChain(GridPlan &plan, const RowChain &chain, int64_t firstCta) const {
  llvm::SmallVector<PhasePlace> places;
  for (unsigned op : chain.ops) {
    plan.ops[op] = *planner.inRows(op, chain.rows);
    plan.ops[op].firstCta = firstCta;
    if (step.ops[op].kind != OpModel::Pointwise)
      continue;
    // Pointwise ops of a phase that have the same tiles read all that they need at once.
    if (target.kind == TargetKind::Cuda && std::find(places.begin(), places.end(), plan.places[op]) != places.end())
      plan.ops[op].tileTime -= 2 * target.loadLatency;
    places.push_back(plan.places[op]);
  }
  keepOperands(plan, chain);
}

GridPlan GridModel::plan(llvm::ArrayRef<RowChain> chains, bool isFinal) const {
  GridPlan plan;
  plan.grid = grid;
  plan.cluster = cluster;
  plan.ops.resize(step.ops.size());
  plan.places = schedulePhases(problemOf(chains));
  plan.readyLevels.resize(step.ops.size());
  for (const Dependence &edge : step.dependences) {
    unsigned &ready = plan.readyLevels[edge.after];
    ready = std::max(ready, plan.places[edge.before].level + 1);
  }
  llvm::SmallVector<int> chainOf = chainsOfOps(step.ops.size(), chains);
  // Each chain has CTAs of its own, as far as there are any.
  int64_t next = 0;
  for (const RowChain &chain : chains) {
    if (next + chain.rows.tiles() > grid)
      next = 0;
    placeChain(plan, chain, next);
    next += chain.rows.tiles();
  }
  llvm::SmallVector<llvm::SmallVector<unsigned>> levels;
  for (unsigned op = 0; op < step.ops.size(); ++op) {
    if (plan.places[op].level >= levels.size())
      levels.resize(plan.places[op].level + 1);
    levels[plan.places[op].level].push_back(op);
  }
  plan.time = repeats ? barrierTime() : predictLaunch(target, cluster == grid);
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
    if (isFinal && target.kind == TargetKind::Cuda)
      improveLevel(plan, members, free);
    plan.levelTimes.push_back(predictLevel(plan, members));
    plan.time += plan.levelTimes.back();
  }
  plan.time += barrierTime() * (levels.empty() ? 0 : levels.size() - 1);
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

// The grids that are worth a try; only those of whole clusters.
static llvm::SmallVector<int64_t> candidateGrids(const TargetFacts &target, int64_t cluster) {
  int64_t unit = std::max<int64_t>(1, cluster);
  llvm::SmallVector<int64_t> grids = {std::max(unit, target.processors / unit * unit)};
  if (target.kind == TargetKind::Cuda)
    for (int64_t grid = 1; grid <= target.maxCluster; grid *= 2)
      if (grid % unit == 0)
        grids.push_back(grid);
  if (std::find(grids.begin(), grids.end(), unit) == grids.end() && cluster > 0)
    grids.push_back(unit);
  return grids;
}

// The fastest of the plans for some grids.
static GridPlan planBest(const StepModel &step, const TargetFacts &target, llvm::ArrayRef<int64_t> grids,
                         int64_t cluster, bool dropsIdle, bool repeats) {
  OpPlanner planner(step.ops, target);
  std::optional<GridPlan> best;
  llvm::SmallVector<Candidate> considered;
  for (int64_t candidate : grids) {
    GridModel model(step, planner, target, candidate, cluster, repeats);
    GridPlan plan = model.plan(searchRowChains(model), /*isFinal=*/true);
    if (dropsIdle)
      dropIdle(plan);
    considered.push_back({plan.grid, plan.cluster, plan.time});
    if (!best || plan.time < best->time)
      best = plan;
  }
  best->considered = considered;
  return *best;
}

GridPlan trainkernel::planGrid(const StepModel &step, const TargetFacts &target, int64_t grid, int64_t cluster) {
  llvm::SmallVector<int64_t> grids = {grid};
  if (grid == 0)
    grids = candidateGrids(target, cluster);
  return planBest(step, target, grids, cluster, grid == 0 && target.kind == TargetKind::Cuda, /*repeats=*/false);
}

// The step with the order of additions that a plan of it has.
static StepModel withOrderOf(const StepModel &step, const GridPlan &plan) {
  StepModel ordered = step;
  for (auto [op, own] : llvm::zip(ordered.ops, plan.ops)) {
    if (op.kind == OpModel::Contraction) {
      op.contraction.depth = own.tile.k;
      op.contraction.groups = own.groups;
    } else if (op.kind == OpModel::Reduction) {
      op.isFixed = true;
      op.fixedSizes = own.sizes;
    }
  }
  return ordered;
}

std::optional<PlanPair> trainkernel::planRepeated(const StepModel &step, const TargetFacts &target,
                                                  const GridPlan &one) {
  // Another kernel is more to compile and to load.
  constexpr double worthwhile = 0.95, bearable = 1.03;
  bool isOneCluster = one.cluster == one.grid;
  double barrier = one.grid == 1 ? target.ctaBarrier : predictBarrier(target, isOneCluster);
  double most = worthwhile * (one.time - predictLaunch(target, isOneCluster) + barrier);
  llvm::SmallVector<int64_t> grids = candidateGrids(target, /*cluster=*/0);
  auto planSeveral = [&](const StepModel &model) {
    return planBest(model, target, grids, /*cluster=*/0, /*dropsIdle=*/true, /*repeats=*/true);
  };
  GridPlan several = planSeveral(step);
  if (several.time > most)
    return std::nullopt;
  // Few CTAs lose more by groups of threads whose sums meet than many CTAs lose without.
  GridPlan likeSeveral = planBest(withOrderOf(step, several), target, one.grid, one.cluster, /*dropsIdle=*/false,
                                  /*repeats=*/false);
  if (likeSeveral.time <= bearable * one.time) {
    likeSeveral.considered = one.considered;
    return PlanPair{likeSeveral, several};
  }
  for (auto [op, own] : llvm::zip(step.ops, one.ops))
    if (op.kind == OpModel::Contraction && isByWarpgroups(op.contraction, own.tile, target))
      return std::nullopt;
  GridPlan likeOne = planSeveral(withOrderOf(step, one));
  return likeOne.time <= most ? std::optional(PlanPair{one, likeOne}) : std::nullopt;
}
