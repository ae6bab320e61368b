//===- InlinePointwise.cpp - form fused ops -------------------------------===//

#include "lib/Transforms/InlinePointwise/InlinePointwise.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/FusionPlan.h"
#include "lib/Analysis/Views.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKINLINEPOINTWISE
#include "lib/Transforms/InlinePointwise/InlinePointwise.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

static bool isSupported(Operation &op) {
  return isa<linalg::GenericOp, tensor::EmptyOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::ExtractSliceOp,
             tensor::InsertSliceOp, ReturnOp>(op) ||
         op.hasTrait<OpTrait::ConstantLike>();
}

namespace {
/// Builds the fused op of one group, cloning its members and the lazy ops that they read.
class GroupBuilder {
public:
  /// `index` is the group that is built, or nothing for an op that belongs to none.
  GroupBuilder(OpBuilder &builder, const FusionPlan &plan, std::optional<unsigned> index, const IRMapping &materialized)
      : builder(builder), plan(plan), index(index), materialized(materialized) {}

  /// Values of the group that are read from outside of it.
  static SmallVector<Value> escapingValues(const FusionPlan &plan, unsigned index) {
    SmallVector<Value> values;
    for (Operation *op : plan.getGroups()[index].ops)
      for (Value result : op->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) {
              return user->getNumResults() == 0 || plan.groupOf(user->getResult(0)) != index;
            }))
          values.push_back(result);
    return values;
  }

  FusedOp build(ArrayRef<Operation *> ops, ArrayRef<Value> escaping) {
    SmallVector<Location> locations;
    for (Operation *op : ops)
      locations.push_back(op->getLoc());
    auto fused =
        FusedOp::create(builder, builder.getFusedLoc(locations), TypeRange(ValueRange(escaping)), ValueRange());
    body = &fused.getBody().emplaceBlock();
    fusedOp = fused;
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(body);
    for (Operation *op : ops)
      clone(op);
    SmallVector<Value> yielded;
    for (Value value : escaping)
      yielded.push_back(inner.lookup(value));
    YieldOp::create(builder, fused.getLoc(), yielded);
    return fused;
  }

private:
  // The value inside the region that stands for `value` of the step.
  Value resolve(Value value) {
    if (Value known = inner.lookupOrNull(value))
      return known;
    Operation *op = value.getDefiningOp();
    assert((!op || !plan.groupOf(value) || plan.groupOf(value) != index) && "members are cloned in program order");
    if (!op || plan.groupOf(value)) {
      Value outer = op ? materialized.lookup(value) : value;
      fusedOp->insertOperands(fusedOp->getNumOperands(), outer);
      Value argument = body->addArgument(outer.getType(), outer.getLoc());
      inner.map(value, argument);
      return argument;
    }
    clone(op);
    return inner.lookup(value);
  }

  void clone(Operation *op) {
    for (Value operand : op->getOperands())
      resolve(operand);
    op->walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        if (operand.getParentBlock() == op->getBlock())
          resolve(operand);
    });
    builder.clone(*op, inner);
  }

  OpBuilder &builder;
  const FusionPlan &plan;
  std::optional<unsigned> index;
  const IRMapping &materialized;
  IRMapping inner;
  Block *body = nullptr;
  FusedOp fusedOp;
};

struct InlinePointwisePass : public megakernel::impl::TkInlinePointwiseBase<InlinePointwisePass> {
  void runOnOperation() override {
    StepOp step = getOperation();
    Block &block = step.getBody().front();
    for (Operation &op : block)
      if (!isSupported(op)) {
        op.emitError() << "'" << op.getName()
                       << "' is not supported in a training step, expected structured "
                          "linalg on tensors";
        return signalPassFailure();
      }
    FusionPlan plan(step);
    OpBuilder builder(block.getTerminator());
    IRMapping materialized;
    for (unsigned group : plan.topologicalOrder()) {
      SmallVector<Value> escaping = GroupBuilder::escapingValues(plan, group);
      if (escaping.empty())
        continue;
      ArrayRef<Operation *> ops = plan.getGroups()[group].ops;
      FusedOp fused = GroupBuilder(builder, plan, group, materialized).build(ops, escaping);
      materialized.map(escaping, fused.getResults());
      ++numFused;
      numInlined += ops.size() - 1;
    }
    materializeReturned(builder, plan, materialized);
    replaceOutsideUses(block, materialized);
    eraseDeadOps(block);
    moveViewsToEnd(block);
  }

  // A constant or slice that is returned is computed by a fused op of its own.
  void materializeReturned(OpBuilder &builder, const FusionPlan &plan, IRMapping &materialized) {
    for (Value value : builder.getInsertionBlock()->getTerminator()->getOperands()) {
      Value source = skipReshapes(value);
      Operation *op = source.getDefiningOp();
      bool isEmpty = cast<RankedTensorType>(source.getType()).getNumElements() == 0;
      if (!op || isEmpty || materialized.contains(source))
        continue;
      FusedOp fused = GroupBuilder(builder, plan, std::nullopt, materialized).build(op, source);
      materialized.map(source, fused.getResult(0));
      ++numFused;
    }
  }

  // What stays outside of fused ops (views of results, the return) reads the fused results.
  static void replaceOutsideUses(Block &block, const IRMapping &materialized) {
    for (auto &[original, replacement] : materialized.getValueMap())
      Value(original).replaceUsesWithIf(replacement, [](OpOperand &use) {
        return isa<ReturnOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp>(use.getOwner()) &&
               isa<StepOp>(use.getOwner()->getParentOp());
      });
  }

  // A view that is left may stand before the fused op that it reads.
  static void moveViewsToEnd(Block &block) {
    SmallVector<Operation *> views;
    for (Operation &op : block.without_terminator())
      if (isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op))
        views.push_back(&op);
    for (Operation *view : views)
      view->moveBefore(block.getTerminator());
  }

  static void eraseDeadOps(Block &block) {
    SmallVector<Operation *> ops;
    for (Operation &op : block.without_terminator())
      ops.push_back(&op);
    for (Operation *op : llvm::reverse(ops))
      if (isOpTriviallyDead(op))
        op->erase();
  }
};
} // namespace
