//===- RequireForm.cpp - a stage's input is the stage before's output -----===//

#include "lib/Transforms/RequireForm/RequireForm.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Scheduling/TargetTable.h"
#include "mlir/IR/Verifier.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKREQUIREFORM
#include "lib/Transforms/RequireForm/RequireForm.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

namespace {
struct RequireFormPass : public megakernel::impl::TkRequireFormBase<RequireFormPass> {
  using TkRequireFormBase::TkRequireFormBase;

  // The compiler runs the passes of a stage without MLIR's verifier between them, which takes as long as they do.
  void runOnOperation() override {
    if (failed(check()) || failed(verify(getOperation())))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

  LogicalResult check() {
    if (form != "step" && form != "kernel")
      return getOperation().emitError() << "form is '" << form << "', expected step or kernel";
    if (form == "step")
      return requireOne<StepOp>("tk-import");
    if (failed(requireOne<KernelOp>("tk-schedule")))
      return failure();
    if (target == "*")
      return success();
    if (!trainkernel::findTarget(target))
      return getOperation().emitError() << "unknown target '" << target << "', expected one of "
                                        << trainkernel::listTargets();
    for (auto kernel : getOperation().getOps<KernelOp>())
      if (kernel.getTarget() && *kernel.getTarget() != target)
        return kernel.emitOpError() << "is scheduled for '" << *kernel.getTarget() << "', expected '" << target << "'";
    return success();
  }

  // Launches of one step and of several may have a kernel each.
  template <typename Ops> static bool isPair(Ops ops) {
    SmallVector<std::optional<StepCount>> counts;
    for (auto op : ops)
      if (auto kernel = dyn_cast<KernelOp>(*op))
        counts.push_back(kernel.getStepCount());
    return counts == SmallVector<std::optional<StepCount>>{StepCount::One, StepCount::Several};
  }

  template <typename Op> LogicalResult requireOne(StringRef stage) {
    int64_t count = llvm::range_size(getOperation().getOps<Op>());
    if (count == 1 || isPair(getOperation().getOps<Op>()))
      return success();
    return getOperation().emitError() << "holds " << count << " of '" << Op::getOperationName() << "', expected one: '"
                                      << stage << "' to have run";
  }
};
} // namespace
