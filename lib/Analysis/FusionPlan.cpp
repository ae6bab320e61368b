//===- FusionPlan.cpp - which ops are computed together -------------------===//

#include "lib/Analysis/FusionPlan.h"

#include "dialects/Megakernel/FusedRegion.h"
#include "lib/Analysis/Views.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::megakernel;
using linalg::GenericOp;

// The most scalar work that is done again instead of being kept: about what a load from L2 costs a warp.
static constexpr int64_t maxLazyCost = 24;

// The most that is done again for each tile of a product that reads it: a product of n columns reads an element of its
// left operand once for each of its tiles along n. About the work of the conversions and masks that come for free.
static constexpr int64_t maxOperandCost = 8;

static int64_t bodyCost(GenericOp op) {
  int64_t cost = 0;
  for (Operation &inner : op.getRegion().front().without_terminator()) {
    if (inner.hasTrait<OpTrait::ConstantLike>())
      continue;
    bool isExpensive = isa<math::MathDialect>(inner.getDialect()) && !isa<math::AbsFOp, math::FmaOp>(inner);
    cost += isExpensive ? 8 : isa<arith::DivFOp>(inner) ? 4 : 1;
  }
  return cost;
}

static ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }

FusionPlan::FusionPlan(StepOp step) {
  for (auto op : step.getBody().front().getOps<GenericOp>())
    place(op);
  for (unsigned group = 0; group < groups.size(); ++group)
    demoteRecomputable(group);
  for (unsigned group = 0, e = groups.size(); group < e; ++group)
    keepCostlyOperands(cast<GenericOp>(groups[group].ops.front()));
  // What was demoted brings its own operands to its readers.
  for (unsigned group = 0; group < groups.size(); ++group) {
    llvm::SetVector<unsigned> reads;
    for (Operation *op : groups[group].ops)
      for (Value operand : valuesRead(op))
        collectGroups(operand, reads);
    reads.remove(group);
    groups[group].predecessors = reads;
  }
}

// An epilogue value that only other groups read need not be kept where they can compute it from values that are kept
// anyway: a relu's mask from its output, for instance.
void FusionPlan::demoteRecomputable(unsigned group) {
  auto isReadOutside = [&](Value value, Operation *besides) {
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      return user != besides && (user->getNumResults() == 0 || groupOf(user->getResult(0)) != group);
    });
  };
  SmallVector<Operation *> members = groups[group].ops;
  for (Operation *op : llvm::reverse(ArrayRef<Operation *>(members).drop_front())) {
    auto generic = cast<GenericOp>(op);
    bool isReadInside = llvm::any_of(op->getUsers(), [&](Operation *user) {
      return user->getNumResults() != 0 && groupOf(user->getResult(0)) == group;
    });
    bool isKept = llvm::all_of(generic.getDpsInputs(),
                               [&](Value input) { return groupOf(input) != group || isReadOutside(input, op); });
    if (isReadInside || !isKept || !mayBeLazy(generic))
      continue;
    llvm::erase(groups[group].ops, op);
    groupOfOp.erase(op);
    recordLazy(generic);
  }
}

// The ops that an operand's elements come from, past views and ops that only move elements.
static void collectComputed(Value value, llvm::SetVector<Operation *> &into) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return;
  auto generic = dyn_cast<GenericOp>(op);
  if (generic && bodyCost(generic) > 0) {
    into.insert(op);
    return;
  }
  for (Value operand : valuesRead(op))
    collectComputed(operand, into);
}

// What a product reads and what is costly to compute is kept, where it is computed from other groups' values anyway: a
// product that reads arguments alone would have to wait for it.
void FusionPlan::keepCostlyOperands(GenericOp op) {
  if (!linalg::isaContractionOpInterface(cast<linalg::LinalgOp>(op.getOperation())))
    return;
  llvm::SetVector<Operation *> computed;
  for (Value operand : op.getDpsInputs())
    collectComputed(operand, computed);
  for (Operation *source : computed) {
    auto lazy = costOfLazy.find(source);
    if (lazy == costOfLazy.end() || lazy->second <= maxOperandCost)
      continue;
    llvm::SetVector<unsigned> reads;
    for (Value operand : valuesRead(source))
      collectGroups(operand, reads);
    if (reads.empty())
      continue;
    costOfLazy.erase(lazy);
    addGroup(cast<GenericOp>(source), reads);
  }
}

std::optional<unsigned> FusionPlan::groupOf(Value value) const {
  auto it = groupOfOp.find(value.getDefiningOp());
  return it == groupOfOp.end() ? std::nullopt : std::optional<unsigned>(it->second);
}

// The groups that a value is read from, looking through lazy ops and views.
void FusionPlan::collectGroups(Value value, llvm::SetVector<unsigned> &into) const {
  Operation *op = value.getDefiningOp();
  if (!op)
    return;
  if (std::optional<unsigned> group = groupOf(value)) {
    into.insert(*group);
    return;
  }
  for (Value operand : valuesRead(op))
    collectGroups(operand, into);
}

bool FusionPlan::dependsOn(unsigned group, unsigned other) const {
  SmallVector<unsigned> worklist = {group};
  llvm::SmallDenseSet<unsigned> seen;
  while (!worklist.empty()) {
    unsigned current = worklist.pop_back_val();
    if (current == other)
      return true;
    if (!seen.insert(current).second)
      continue;
    llvm::append_range(worklist, groups[current].predecessors);
  }
  return false;
}

void FusionPlan::place(GenericOp op) {
  llvm::SetVector<unsigned> reads;
  for (Value operand : valuesRead(op))
    collectGroups(operand, reads);
  if (isReduction(op)) {
    addGroup(op, reads);
    return;
  }
  if (std::optional<unsigned> group = findEpilogue(op, reads)) {
    FusionGroup &home = groups[*group];
    home.ops.push_back(op);
    groupOfOp[op] = *group;
    for (unsigned other : reads)
      if (other != *group)
        home.predecessors.insert(other);
    return;
  }
  if (mayBeLazy(op))
    recordLazy(op);
  else
    addGroup(op, reads);
}

// A group can take `op` in when some operand is a value of the group read at the very element that is computed,
// and when nothing else that `op` reads is computed from that group.
std::optional<unsigned> FusionPlan::findEpilogue(GenericOp op, const llvm::SetVector<unsigned> &reads) const {
  if (!llvm::all_of(op.getDpsInitsMutable(),
                    [&](OpOperand &init) { return op.getMatchingIndexingMap(&init).isIdentity(); }))
    return std::nullopt;
  std::optional<unsigned> best;
  for (OpOperand *input : op.getDpsInputOperands()) {
    std::optional<unsigned> group = groupOf(input->get());
    if (!group || !op.getMatchingIndexingMap(input).isIdentity() ||
        shapeOf(op.getResult(0)) != ArrayRef<int64_t>(groups[*group].shape))
      continue;
    bool isCyclic = llvm::any_of(reads, [&](unsigned other) { return other != *group && dependsOn(other, *group); });
    if (!isCyclic && (!best || dependsOn(*group, *best)))
      best = group;
  }
  // Reading another element of the same group needs the group's value in memory first.
  for (OpOperand &operand : op->getOpOperands()) {
    if (!best)
      break;
    llvm::SetVector<unsigned> from;
    collectGroups(operand.get(), from);
    bool isSameElement = groupOf(operand.get()) == best && op.getMatchingIndexingMap(&operand).isIdentity();
    if (from.contains(*best) && !isSameElement)
      best = std::nullopt;
  }
  for (Value extracted : extractedTensors(op)) {
    llvm::SetVector<unsigned> from;
    collectGroups(extracted, from);
    if (best && from.contains(*best))
      best = std::nullopt;
  }
  return best;
}

int64_t FusionPlan::lazyCost(Value value) const {
  Operation *op = value.getDefiningOp();
  if (auto it = costOfLazy.find(op); it != costOfLazy.end())
    return it->second;
  // A view costs what is behind it, and one that joins two tensors a choice.
  int64_t cost = 0;
  if (op && !isa<GenericOp>(op))
    for (Value operand : op->getOperands())
      cost += lazyCost(operand) + (isa<tensor::InsertSliceOp>(op) ? 1 : 0);
  return cost;
}

// An op is computed again in its readers when that is cheap and it is not itself a result of the step.
bool FusionPlan::mayBeLazy(GenericOp op) const {
  if (llvm::any_of(op.getResults(), isReturned))
    return false;
  return costIfLazy(op) <= maxLazyCost;
}

int64_t FusionPlan::costIfLazy(GenericOp op) const {
  int64_t cost = bodyCost(op);
  for (Value operand : valuesRead(op))
    cost += lazyCost(operand);
  return cost;
}

void FusionPlan::recordLazy(GenericOp op) { costOfLazy[op] = costIfLazy(op); }

unsigned FusionPlan::addGroup(GenericOp op, const llvm::SetVector<unsigned> &reads) {
  FusionGroup group;
  group.ops.push_back(op);
  group.predecessors = reads;
  group.shape = llvm::to_vector(shapeOf(op.getResult(0)));
  groups.push_back(std::move(group));
  groupOfOp[op] = groups.size() - 1;
  return groups.size() - 1;
}

SmallVector<unsigned> FusionPlan::topologicalOrder() const {
  SmallVector<unsigned> order;
  llvm::SmallDenseSet<unsigned> done;
  std::function<void(unsigned)> visit = [&](unsigned group) {
    if (!done.insert(group).second)
      return;
    for (unsigned predecessor : groups[group].predecessors)
      visit(predecessor);
    order.push_back(group);
  };
  for (unsigned group = 0; group < groups.size(); ++group)
    visit(group);
  return order;
}
