//===- VerifyAutodiff.cpp - the structure of a training step --------------===//

#include "lib/Transforms/VerifyAutodiff/VerifyAutodiff.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "mlir/Analysis/SliceAnalysis.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKVERIFYAUTODIFF
#include "lib/Transforms/VerifyAutodiff/VerifyAutodiff.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

namespace {
/// Which arguments each result of a step is computed from.
class Dependences {
public:
  explicit Dependences(StepOp step) {
    for (Value value : step.getBody().front().getTerminator()->getOperands())
      perResult.push_back(argumentsOf(step, value));
  }
  const llvm::BitVector &of(unsigned result) const { return perResult[result]; }

private:
  static llvm::BitVector argumentsOf(StepOp step, Value value) {
    llvm::BitVector arguments(step.getNumArguments());
    auto note = [&](Value operand) {
      if (auto argument = dyn_cast<BlockArgument>(operand))
        if (argument.getOwner()->getParentOp() == step)
          arguments.set(argument.getArgNumber());
    };
    note(value);
    // The slice of an argument would be the whole step.
    if (!value.getDefiningOp())
      return arguments;
    SetVector<Operation *> slice;
    BackwardSliceOptions options;
    options.inclusive = true;
    options.omitUsesFromAbove = false;
    if (succeeded(getBackwardSlice(value, &slice, options)))
      for (Operation *op : slice)
        op->walk([&](Operation *inner) { llvm::for_each(inner->getOperands(), note); });
    return arguments;
  }

  SmallVector<llvm::BitVector> perResult;
};

std::string pathOf(DictionaryAttr attributes, StringRef kind, unsigned index) {
  if (attributes)
    if (auto path = attributes.getAs<StringAttr>(MegakernelDialect::getPathAttrName()))
      return "'" + path.getValue().str() + "'";
  return kind.str() + " " + std::to_string(index);
}

std::string argumentName(StepOp step, unsigned index) { return pathOf(step.getArgAttrDict(index), "argument", index); }
std::string resultName(StepOp step, unsigned index) { return pathOf(step.getResultAttrDict(index), "result", index); }

struct VerifyAutodiffPass : public megakernel::impl::TkVerifyAutodiffBase<VerifyAutodiffPass> {
  void runOnOperation() override {
    StepOp step = getOperation();
    Dependences dependences(step);
    FailureOr<std::optional<unsigned>> loss = findLoss(step);
    if (failed(loss) || failed(verifyGradients(step, *loss, dependences)) ||
        failed(verifyUpdates(step, *loss, dependences)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

  static FailureOr<std::optional<unsigned>> findLoss(StepOp step) {
    std::optional<unsigned> loss;
    for (unsigned i = 0, e = step.getNumResults(); i < e; ++i) {
      if (step.getResultRole(i) != Role::Loss)
        continue;
      if (loss)
        return step.emitError() << "results " << resultName(step, *loss) << " and " << resultName(step, i)
                                << " are both the loss, expected one loss";
      auto type = cast<RankedTensorType>(step.getResultTypes()[i]);
      if (type.getRank() != 0 || !isa<FloatType>(type.getElementType()))
        return step.emitError() << "the loss " << resultName(step, i) << " has type " << type
                                << ", expected a scalar of floating-point type";
      loss = i;
    }
    return loss;
  }

  static LogicalResult verifyGradients(StepOp step, std::optional<unsigned> loss, const Dependences &dependences) {
    for (unsigned i = 0, e = step.getNumResults(); i < e; ++i) {
      std::optional<unsigned> of = step.getGradientArg(i);
      if (!of)
        continue;
      unsigned arg = *of;
      if (step.getResultTypes()[i] != step.getArgumentTypes()[arg])
        return step.emitError() << "the gradient " << resultName(step, i) << " has type " << step.getResultTypes()[i]
                                << ", expected " << step.getArgumentTypes()[arg] << " as its parameter "
                                << argumentName(step, arg);
      if (!loss)
        return step.emitError() << "returns the gradient " << resultName(step, i) << " but no loss, expected a loss";
      if (!dependences.of(*loss).test(arg))
        return step.emitError() << "the loss " << resultName(step, *loss) << " does not depend on "
                                << argumentName(step, arg) << ", expected it to, as " << resultName(step, i)
                                << " is its gradient";
    }
    return success();
  }

  static LogicalResult verifyUpdates(StepOp step, std::optional<unsigned> loss, const Dependences &dependences) {
    llvm::BitVector updated(step.getNumArguments());
    Operation *end = step.getBody().front().getTerminator();
    for (unsigned i = 0, e = step.getNumResults(); i < e; ++i) {
      std::optional<unsigned> arg = step.getUpdatedArg(i);
      if (!arg || step.getResultRole(i) != Role::NewState)
        continue;
      updated.set(*arg);
      // Its own old value, or another state's: states may change places.
      bool isHandedOn = isa<BlockArgument>(end->getOperand(i));
      if (!loss || isHandedOn || !dependences.of(*loss).test(*arg))
        continue;
      // Anything else that the loss reads can only have come in through a gradient.
      llvm::BitVector others = dependences.of(*loss);
      others.reset(*arg);
      if (others.any() && !others.anyCommon(dependences.of(i)))
        return step.emitError() << "the update of " << argumentName(step, *arg)
                                << " depends on nothing that the loss is computed from, expected it to depend on a "
                                   "gradient";
    }
    for (unsigned i = 0, e = step.getNumArguments(); i < e; ++i)
      if (step.getArgRole(i) == Role::State && !updated.test(i))
        return step.emitError() << "the state " << argumentName(step, i)
                                << " has no update, expected exactly one new state; return it unchanged to keep it";
    return success();
  }
};
} // namespace
