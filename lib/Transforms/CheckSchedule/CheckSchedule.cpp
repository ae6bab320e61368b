//===- CheckSchedule.cpp - races and deadlocks ----------------------------===//

#include "lib/Transforms/CheckSchedule/CheckSchedule.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKCHECKSCHEDULE
#include "lib/Transforms/CheckSchedule/CheckSchedule.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using trainkernel::Conflict;

static LogicalResult verifyBarrier(KernelOp kernel, BarrierOp barrier) {
  bool isOneCta = kernel.getGrid() == 1, isOneCluster = kernel.getGrid() == kernel.getCluster();
  if (barrier.getScope() == Scope::Cta && !isOneCta)
    return barrier.emitError() << "barrier of scope cta in a grid of " << kernel.getGrid()
                               << " CTAs, expected a scope that joins all of them";
  if (barrier.getScope() == Scope::Cluster && !isOneCluster)
    return barrier.emitError() << "barrier of scope cluster in a grid of " << kernel.getGrid()
                               << " CTAs in clusters of " << kernel.getCluster()
                               << ", expected scope grid to join all of them";
  return success();
}

static LogicalResult verifyComplete(KernelOp kernel) {
  for (Operation &op : kernel.getBody().front()) {
    auto buffer = dyn_cast<BufferOp>(op);
    if (buffer && !buffer.getOffset())
      return buffer.emitError("buffer has no offset, expected 'tk-plan-buffers' to have run");
    if (isa<CommitOp>(op))
      return op.emitError("commit is not resolved, expected 'tk-commit-state' to have run");
    auto barrier = dyn_cast<BarrierOp>(op);
    if (barrier && failed(verifyBarrier(kernel, barrier)))
      return failure();
    if (buffer && (!kernel.getArenaBytes() ||
                   *buffer.getOffset() + bytesOfBuffer(cast<MemRefType>(buffer.getType())) > *kernel.getArenaBytes()))
      return buffer.emitError("buffer lies outside of the arena, expected 'arena_bytes' to cover it");
  }
  return success();
}

static void report(const KernelAccesses &all, const Conflict &conflict) {
  const trainkernel::Access &first = all.accesses[conflict.first], &second = all.accesses[conflict.second];
  if (conflict.kind == Conflict::Uninitialized) {
    all.ops[second.op]->emitError("reads bytes that no earlier phase wrote, expected a write and a barrier before it");
    return;
  }
  if (conflict.kind == Conflict::Overwritten) {
    InFlightDiagnostic diag = all.ops[second.op]->emitError(
        "reads a state after its new value may have replaced it, expected the read in an earlier phase");
    diag.attachNote(all.ops[first.op]->getLoc()) << "written here";
    return;
  }
  auto verb = [](bool isWrite) { return isWrite ? "writes" : "reads"; };
  InFlightDiagnostic diag = all.ops[second.op]->emitError()
                            << verb(second.isWrite) << " what another access " << verb(first.isWrite)
                            << " with no barrier between them, expected one";
  diag.attachNote(all.ops[first.op]->getLoc()) << "the other access";
}

namespace {
struct CheckSchedulePass : public megakernel::impl::TkCheckScheduleBase<CheckSchedulePass> {
  void runOnOperation() override {
    markAllAnalysesPreserved();
    KernelOp kernel = getOperation();
    if (failed(verifyComplete(kernel)))
      return signalPassFailure();
    KernelAccesses all(kernel);
    SmallVector<Conflict> conflicts = trainkernel::findConflicts(all.accesses);
    for (const Conflict &conflict : conflicts)
      report(all, conflict);
    if (!conflicts.empty())
      signalPassFailure();
  }
};
} // namespace
