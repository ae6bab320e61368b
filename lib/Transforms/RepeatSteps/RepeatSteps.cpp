//===- RepeatSteps.cpp - several steps in a launch ------------------------===//

#include "lib/Transforms/RepeatSteps/RepeatSteps.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/TileFootprint.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKREPEATSTEPS
#include "lib/Transforms/RepeatSteps/RepeatSteps.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

namespace {
/// What two steps of a launch touch without an order, as far as no barrier of the kernel stands between them.
struct StepConflicts {
  /// The least scope that orders it.
  SyncScope scope = SyncScope::Cta;
  /// The buffers in the arena that a step writes while CTAs of the one before may still read them.
  llvm::SetVector<BufferOp> buffers;
};
} // namespace

static StepConflicts conflictsBetweenSteps(KernelOp kernel) {
  StepConflicts found;
  KernelAccesses all(kernel);
  for (const Conflict &conflict : findConflicts(all.accesses, placementOf(kernel))) {
    if (conflict.kind != Conflict::Race || all.accesses[conflict.first].step == all.accesses[conflict.second].step)
      continue;
    found.scope = std::max(found.scope, conflict.scope);
    auto buffer = all.buffers[conflict.second].getDefiningOp<BufferOp>();
    if (buffer && !buffer.isOnChip())
      found.buffers.insert(buffer);
  }
  return found;
}

// With places of their own for even and odd steps, buffers may let fewer CTAs meet between two steps.
static SyncScope scopeWithPlaces(KernelOp kernel) {
  StepConflicts found = conflictsBetweenSteps(kernel);
  if (found.buffers.empty())
    return found.scope;
  for (BufferOp buffer : found.buffers)
    buffer.setAlternates(true);
  SyncScope rest = conflictsBetweenSteps(kernel).scope;
  for (BufferOp buffer : found.buffers)
    buffer.setAlternates(rest < found.scope);
  return std::min(rest, found.scope);
}

namespace {
struct RepeatStepsPass : public megakernel::impl::TkRepeatStepsBase<RepeatStepsPass> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    if (kernel.getRepeat() || kernel.getStepCount() == StepCount::One)
      return;
    OpBuilder builder(kernel.getBody().front().getTerminator());
    auto repeat = RepeatOp::create(builder, kernel.getLoc(), Scope::Cta);
    // How many workers a CPU has is not known yet, and meeting costs them little beside their work.
    repeat.setScope(kernel.getTarget() == "cpu" ? kernel.getJoiningScope()
                                                : barrierScope(kernel, scopeWithPlaces(kernel)));
  }
};
} // namespace
