//===- PlanBuffers.cpp - places in the arena ------------------------------===//

#include "lib/Transforms/PlanBuffers/PlanBuffers.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/TileFootprint.h"
#include "lib/Scheduling/ArenaPlanner.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKPLANBUFFERS
#include "lib/Transforms/PlanBuffers/PlanBuffers.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

namespace {
struct PlanBuffersPass : public megakernel::impl::TkPlanBuffersBase<PlanBuffersPass> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    SmallVector<BufferOp> buffers = llvm::to_vector(kernel.getBody().front().getOps<BufferOp>());
    llvm::MapVector<Value, ArenaBuffer> lifetimes = collectLifetimes(kernel);
    SmallVector<ArenaBuffer> problem;
    for (auto &[buffer, lifetime] : lifetimes)
      problem.push_back(lifetime);
    ArenaPlan plan = planArena(problem);
    std::string fault = verifyArena(problem, plan);
    if (!fault.empty()) {
      kernel.emitError() << "internal error in the arena plan: " << fault;
      return signalPassFailure();
    }
    for (auto [entry, offset] : llvm::zip(lifetimes, plan.offsets))
      cast<BufferOp>(entry.first.getDefiningOp()).setOffset(offset);
    for (BufferOp buffer : buffers)
      if (buffer->use_empty())
        buffer.erase();
    kernel.setArenaBytes(plan.bytes);
    arenaBytes = plan.bytes;
  }

private:
  // From the epoch of the first access to that of the last.
  llvm::MapVector<Value, ArenaBuffer> collectLifetimes(KernelOp kernel) {
    llvm::MapVector<Value, ArenaBuffer> lifetimes;
    unsigned epoch = 0;
    auto touch = [&](Value value) {
      Value root = rootOfBuffer(value);
      auto buffer = root.getDefiningOp<BufferOp>();
      if (!buffer || buffer.isOnChip())
        return;
      int64_t bytes = buffer.getBytesInArena();
      auto [it, isNew] = lifetimes.try_emplace(root, ArenaBuffer{bytes, epoch, epoch});
      it->second.last = epoch;
      if (isNew)
        bufferBytes += bytes;
    };
    for (Operation &op : kernel.getBody().front()) {
      // Other CTAs may still be at work on a buffer until all have met.
      if (auto barrier = dyn_cast<BarrierOp>(op))
        epoch += joinedBy(kernel, barrier.getScope()) == SyncScope::Grid;
      if (isa<PhaseOp, CommitOp>(op))
        op.walk([&](Operation *inner) {
          if (isa<TileOp, CommitOp>(inner))
            llvm::for_each(inner->getOperands(), touch);
        });
    }
    for (auto &[buffer, lifetime] : lifetimes) {
      // One place waits for its step while the other one is in use.
      bool alternates = cast<BufferOp>(buffer.getDefiningOp()).getAlternates();
      if (alternates || (lifetime.last == epoch && isOpenBetweenSteps(kernel)))
        lifetime.first = 0;
      if (alternates)
        lifetime.last = epoch;
    }
    return lifetimes;
  }

  // The next step may begin before all CTAs are done with this one: what is in use in the last epoch is so in the first
  // one, too.
  static bool isOpenBetweenSteps(KernelOp kernel) {
    RepeatOp repeat = kernel.getRepeat();
    return repeat && joinedBy(kernel, repeat.getScope()) != SyncScope::Grid;
  }
};
} // namespace
