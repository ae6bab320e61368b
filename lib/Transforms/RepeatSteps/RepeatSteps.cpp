//===- RepeatSteps.cpp - several steps in a launch ------------------------===//

#include "lib/Transforms/RepeatSteps/RepeatSteps.h"

#include "dialects/Megakernel/MegakernelDialect.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKREPEATSTEPS
#include "lib/Transforms/RepeatSteps/RepeatSteps.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;

namespace {
struct RepeatStepsPass : public megakernel::impl::TkRepeatStepsBase<RepeatStepsPass> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    if (kernel.getRepeat())
      return;
    OpBuilder builder(kernel.getBody().front().getTerminator());
    RepeatOp::create(builder, kernel.getLoc(), kernel.getJoiningScope());
  }
};
} // namespace
