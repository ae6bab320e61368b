//===- OpPlanner.cpp - how one op is cut into tiles -----------------------===//

#include "lib/Scheduling/OpPlanner.h"

#include <algorithm>
#include <numeric>

using namespace trainkernel;

static int64_t product(llvm::ArrayRef<int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), int64_t(1), std::multiplies<int64_t>());
}

llvm::SmallVector<int64_t> trainkernel::rowCountsOf(llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<int64_t> counts;
  int64_t count = 1;
  for (int64_t extent : shape) {
    count *= extent;
    if (extent > 1)
      counts.push_back(count);
  }
  return counts;
}

static bool isAlike(const OpModel &a, const OpModel &b) {
  const ContractionShape &x = a.contraction, &y = b.contraction;
  if (a.isChosen() || b.isChosen())
    return &a == &b;
  return a.kind == b.kind && a.shape == b.shape && a.reduced == b.reduced &&
         a.reducesContiguous == b.reducesContiguous && a.bytes == b.bytes && a.work == b.work &&
         a.rowsLead == b.rowsLead && a.sharedOperand == b.sharedOperand && x.batch == y.batch && x.m == y.m &&
         x.n == y.n && x.k == y.k && x.aBytes == y.aBytes && x.bBytes == y.bBytes && x.resultBytes == y.resultBytes &&
         x.resultWork == y.resultWork && x.multiplier == y.multiplier && x.depth == y.depth && x.groups == y.groups;
}

OpPlanner::OpPlanner(llvm::ArrayRef<OpModel> ops, const TargetFacts &target) : ops(ops), target(target) {
  for (const OpModel &op : ops) {
    const OpModel *first =
        std::find_if(ops.begin(), ops.end(), [&](const OpModel &other) { return isAlike(op, other); });
    likeness.push_back(first - ops.begin());
  }
}

// Elements per tile of a pointwise op: a CTA's threads take 16 bytes each; a CPU worker takes what fits in L1.
static int64_t pointwiseElements(const TargetFacts &target) {
  return target.kind == TargetKind::Cpu ? 4096 : target.threads * 4;
}

TileCost trainkernel::predictOp(const OpModel &op, const OpPlan &plan, const TargetFacts &target, int64_t busy) {
  if (op.kind == OpModel::Contraction)
    return predictTile(op.contraction, plan.tile, target, busy);
  // Two dependent round trips: operands, and for a reduction the meeting of its parts.
  double tiles = std::max<int64_t>(1, plan.tiles);
  TileCost cost;
  cost.latency = 2 * target.loadLatency;
  cost.operands = op.bytes / tiles * target.timePerByte;
  if (target.kind == TargetKind::Cuda)
    cost.epilogue = op.work / tiles / instructionsPerCycle / target.clock;
  return cost;
}

static OpPlan withCost(OpPlan plan, const OpModel &op, const TargetFacts &target, int64_t busy) {
  plan.cost = predictOp(op, plan, target, busy);
  plan.tileTime = plan.cost.total();
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

static OpPlan planOp(const OpModel &op, const TargetFacts &target, int64_t processors) {
  OpPlan plan;
  if (op.kind == OpModel::Contraction) {
    plan.tile = op.isFixed ? op.fixedTile : chooseContractionTile(op.contraction, target, processors);
    plan.tiles = countTiles(op.contraction, plan.tile);
    plan.groups = groupsOf(op.contraction, plan.tile, target);
    int64_t busy = std::min(plan.tiles, processors);
    if (op.sharedOperand >= 0 && plan.tiles <= processors)
      plan.operandTime = predictOperandTime(op.contraction, plan.tile, target, busy);
    return withCost(plan, op, target, busy);
  }
  int64_t outputs = product(op.shape), perTile = pointwiseElements(target);
  if (op.kind == OpModel::Reduction)
    perTile = reductionOutputsPerTile(outputs, op.reduced, op.reducesContiguous, target);
  plan.sizes = op.isFixed ? op.fixedSizes : chooseElementTile(op.shape, perTile);
  plan.tiles = countTiles(op.shape, plan.sizes);
  return withCost(plan, op, target, std::min(plan.tiles, processors));
}

const OpPlan &OpPlanner::onCtas(unsigned op, int64_t processors) {
  auto [it, isNew] = spread.try_emplace({likeness[op], processors});
  if (isNew)
    it->second = planOp(ops[op], target, processors);
  return it->second;
}

const std::optional<OpPlan> &OpPlanner::inRows(unsigned op, const RowBlocks &rows) {
  auto [it, isNew] = rowwise.try_emplace({likeness[op], rows.count, rows.perTile});
  if (isNew)
    it->second = planRows(ops[op], rows, factsFor(rows));
  return it->second;
}

// Tile sizes over `shape` that give each tile its rows, or nothing: a tile of rows must be a box.
static std::optional<Sizes> rowSizes(llvm::ArrayRef<int64_t> shape, const RowBlocks &rows) {
  size_t leading = 0;
  for (int64_t count = 1; count < rows.count; count *= shape[leading++])
    if (leading == shape.size())
      return std::nullopt;
  llvm::ArrayRef<int64_t> prefix = shape.take_front(leading);
  if (product(prefix) != rows.count)
    return std::nullopt;
  Sizes sizes = chooseElementTile(prefix, rows.perTile);
  if (product(sizes) != rows.perTile || countTiles(prefix, sizes) != rows.tiles())
    return std::nullopt;
  sizes.append(shape.begin() + leading, shape.end());
  return sizes;
}

// Memory is faster for each of few CTAs.
TargetFacts OpPlanner::factsFor(const RowBlocks &rows) const {
  constexpr int64_t few = 16;
  TargetFacts facts = target;
  if (rows.tiles() <= few)
    facts.timePerByte = target.timePerByteOfFew;
  return facts;
}

std::optional<OpPlan> OpPlanner::planRows(const OpModel &op, const RowBlocks &rows, const TargetFacts &target) const {
  if (op.isChosen())
    return std::nullopt;
  if (op.kind == OpModel::Contraction)
    return planRowContraction(op, rows, target);
  std::optional<Sizes> sizes = rowSizes(op.shape, rows);
  // A reduction has a thread for each of its results.
  bool hasThreads =
      target.kind == TargetKind::Cpu || op.kind == OpModel::Pointwise || (sizes && product(*sizes) <= target.threads);
  if (!sizes || !hasThreads)
    return std::nullopt;
  OpPlan plan;
  plan.sizes = *sizes;
  plan.tiles = rows.tiles();
  return withCost(plan, op, target, plan.tiles);
}

// Tiles of m are the rows, and n is whole.
std::optional<OpPlan> OpPlanner::planRowContraction(const OpModel &op, const RowBlocks &rows,
                                                    const TargetFacts &target) const {
  const ContractionShape &shape = op.contraction;
  llvm::ArrayRef<int64_t> leading = llvm::ArrayRef<int64_t>(op.shape).drop_back();
  if (target.kind == TargetKind::Cpu || !op.rowsLead || product(leading) != rows.count || rows.perTile > shape.m ||
      shape.m % rows.perTile != 0)
    return std::nullopt;
  std::optional<WholeRowTile> whole = chooseWholeRowTile(shape, rows.perTile, op.sharedOperand >= 0, target);
  if (!whole)
    return std::nullopt;
  OpPlan plan;
  plan.tile = whole->tile;
  plan.groups = groupsOf(shape, whole->tile, target);
  plan.tile.m = rows.perTile;
  plan.tiles = rows.tiles();
  plan.cost = whole->cost;
  plan.tileTime = plan.cost.total();
  plan.keptBytes = whole->keptBytes;
  plan.ownBytes = whole->ownBytes;
  if (op.sharedOperand >= 0)
    plan.operandTime = predictOperandTime(shape, whole->tile, target, plan.tiles);
  return plan;
}
