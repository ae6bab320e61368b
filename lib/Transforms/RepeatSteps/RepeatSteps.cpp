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

// What one step and a later one touch without an order, as far as no barrier of the kernel stands between them.
static SmallVector<Conflict> conflictsBetweenSteps(KernelOp kernel, const KernelAccesses &all) {
  SmallVector<Conflict> found = findConflicts(all.accesses, placementOf(kernel));
  llvm::erase_if(found, [&](const Conflict &conflict) {
    return conflict.kind != Conflict::Race || all.accesses[conflict.first].step == all.accesses[conflict.second].step;
  });
  return found;
}

// The least scope that orders what the next step touches with all before it.
static SyncScope scopeBetweenSteps(KernelOp kernel) {
  SyncScope needed = SyncScope::Cta;
  KernelAccesses all(kernel);
  for (const Conflict &conflict : conflictsBetweenSteps(kernel, all))
    needed = std::max(needed, conflict.scope);
  return needed;
}

// The buffers in the arena that a step writes while CTAs of the one before may still read them.
static llvm::SetVector<BufferOp> buffersReadLate(KernelOp kernel) {
  llvm::SetVector<BufferOp> buffers;
  KernelAccesses all(kernel);
  for (const Conflict &conflict : conflictsBetweenSteps(kernel, all)) {
    auto buffer = all.buffers[conflict.second].getDefiningOp<BufferOp>();
    if (buffer && !buffer.isOnChip())
      buffers.insert(buffer);
  }
  return buffers;
}

// With places of their own for even and odd steps, buffers may let fewer CTAs meet between two steps.
static SyncScope scopeWithPlaces(KernelOp kernel) {
  SyncScope needed = scopeBetweenSteps(kernel);
  if (needed == SyncScope::Cta)
    return needed;
  llvm::SetVector<BufferOp> buffers = buffersReadLate(kernel);
  for (BufferOp buffer : buffers)
    buffer.setAlternates(true);
  SyncScope rest = buffers.empty() ? needed : scopeBetweenSteps(kernel);
  for (BufferOp buffer : buffers)
    buffer.setAlternates(rest < needed);
  return std::min(rest, needed);
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
