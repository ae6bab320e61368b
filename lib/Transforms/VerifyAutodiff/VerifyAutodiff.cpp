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

std::string argumentNames(StepOp step, const llvm::BitVector &arguments) {
  std::string names;
  for (unsigned index : arguments.set_bits())
    names += (names.empty() ? "" : ", ") + argumentName(step, index);
  return names;
}

/// The line that computes a result.
Location locationOf(StepOp step, unsigned result) {
  Operation *op = step.getBody().front().getTerminator()->getOperand(result).getDefiningOp();
  return op && !isa<UnknownLoc>(op->getLoc()) ? op->getLoc() : step.getLoc();
}

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
      if (!dependences.of(*loss).test(arg)) {
        InFlightDiagnostic error = step.emitError();
        error << "the loss " << resultName(step, *loss) << " does not depend on " << argumentName(step, arg)
              << ", expected it to, as " << resultName(step, i) << " is its gradient";
        error.attachNote() << "a gradient that is zero on purpose is to be left out of those that the step returns, or "
                              "declared to be no gradient";
        return error;
      }
      llvm::BitVector used = step.getUsedGradients(i);
      if (used.any() && !used.test(arg))
        return emitError(locationOf(step, i))
               << "the gradient " << resultName(step, i) << " is computed from that by " << argumentNames(step, used)
               << ", expected that by its parameter " << argumentName(step, arg);
    }
    return success();
  }

  static LogicalResult verifyUpdates(StepOp step, std::optional<unsigned> loss, const Dependences &dependences) {
    llvm::BitVector updated(step.getNumArguments());
    for (unsigned i = 0, e = step.getNumResults(); i < e; ++i)
      if (std::optional<unsigned> arg = step.getUpdatedArg(i))
        updated.set(*arg);
    for (unsigned i = 0, e = step.getNumArguments(); i < e; ++i)
      if (step.getArgRole(i) == Role::State && !updated.test(i))
        return step.emitError() << "the state " << argumentName(step, i)
                                << " has no update, expected exactly one new state; return it unchanged to keep it";
    if (llvm::BitVector parameters = differentiatedState(step); parameters.any())
      return verifyDifferentiated(step, parameters);
    if (!loss)
      return success();
    bool returnsGradients = false;
    for (unsigned i = 0, e = step.getNumResults(); i < e; ++i)
      if (std::optional<unsigned> arg = step.getGradientArg(i)) {
        returnsGradients = true;
        if (failed(verifyReturnedGradient(step, i, *arg, dependences)))
          return failure();
      }
    return returnsGradients ? success() : verifySomethingIsTrained(step, *loss, dependences);
  }

  static llvm::BitVector differentiatedState(StepOp step) {
    llvm::BitVector found(step.getNumArguments());
    for (unsigned i = 0, e = step.getNumArguments(); i < e; ++i)
      if (step.getArgRole(i) == Role::State && step.isDifferentiated(i))
        found.set(i);
    return found;
  }

  /// What is differentiated is updated by its own gradient, or kept, or averaged with another parameter.
  static LogicalResult verifyDifferentiated(StepOp step, const llvm::BitVector &parameters) {
    for (unsigned i = 0, e = step.getNumResults(); i < e; ++i) {
      llvm::BitVector used = step.getUsedGradients(i);
      std::optional<unsigned> arg = changedArgument(step, i);
      // A scalar may as well be a schedule, such as a temperature, whose gradient comes along unused.
      if (!arg || !parameters.test(*arg) || cast<RankedTensorType>(step.getArgumentTypes()[*arg]).getRank() == 0)
        continue;
      llvm::BitVector others = parameters;
      others.reset(*arg);
      if (used.test(*arg) || step.getUsedValues(i).anyCommon(others))
        continue;
      InFlightDiagnostic error = emitError(locationOf(step, i)) << "the update of " << argumentName(step, *arg);
      if (used.any())
        error << " uses the gradient by " << argumentNames(step, used) << ", expected that by "
              << argumentName(step, *arg);
      else
        error << " uses no gradient, expected the gradient by it, which the step takes";
      error.attachNote() << "to keep " << argumentName(step, *arg)
                         << " return it unchanged; to take no gradient by it use it with .detach() in the loss";
      return error;
    }
    return success();
  }

  /// The update of a parameter whose gradient is a result depends on what the gradient depends on.
  static LogicalResult verifyReturnedGradient(StepOp step, unsigned gradient, unsigned parameter,
                                              const Dependences &dependences) {
    llvm::BitVector sources = dependences.of(gradient);
    sources.reset(parameter);
    for (unsigned i = 0, e = step.getNumResults(); i < e; ++i)
      // A gradient without sources is a constant, or that of a regulariser; it leaves no trace in the update.
      if (changedArgument(step, i) == parameter && sources.any() && !sources.anyCommon(dependences.of(i)))
        return emitError(locationOf(step, i))
               << "the update of " << argumentName(step, parameter) << " does not depend on "
               << argumentNames(step, sources) << ", expected it to use the gradient " << resultName(step, gradient)
               << ", which does";
    return success();
  }

  /// Where no gradient is known, state that the loss is computed from is trained if its update depends on something
  /// else that the loss is computed from. If none is, the rest can be no schedule beside it.
  static LogicalResult verifySomethingIsTrained(StepOp step, unsigned loss, const Dependences &dependences) {
    std::optional<unsigned> suspect;
    for (unsigned i = 0, e = step.getNumResults(); i < e; ++i) {
      std::optional<unsigned> arg = changedArgument(step, i);
      if (!arg || !dependences.of(loss).test(*arg))
        continue;
      llvm::BitVector others = dependences.of(loss);
      others.reset(*arg);
      if (others.none() || others.anyCommon(dependences.of(i)))
        return success();
      if (!suspect)
        suspect = i;
    }
    if (!suspect)
      return success();
    InFlightDiagnostic error = emitError(locationOf(step, *suspect))
                               << "the update of " << argumentName(step, *changedArgument(step, *suspect))
                               << " uses no gradient of the loss, expected it to depend on one";
    error.attachNote() << "if the step is to train nothing, declare that it has no loss: --loss '', or "
                          "StepRoles(loss=None) in Python";
    return error;
  }

  /// The floating-point state that a result replaces by something else than an unchanged argument.
  static std::optional<unsigned> changedArgument(StepOp step, unsigned result) {
    std::optional<unsigned> arg = step.getUpdatedArg(result);
    // States may change places: an argument handed on may be another one.
    if (!arg || isa<BlockArgument>(step.getBody().front().getTerminator()->getOperand(result)) ||
        !isa<FloatType>(cast<RankedTensorType>(step.getArgumentTypes()[*arg]).getElementType()))
      return std::nullopt;
    return arg;
  }
};
} // namespace
