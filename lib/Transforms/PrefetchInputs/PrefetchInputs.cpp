//===- PrefetchInputs.cpp - inputs that need not wait for a barrier -------===//

#include "lib/Transforms/PrefetchInputs/PrefetchInputs.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/TileFootprint.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKPREFETCHINPUTS
#include "lib/Transforms/PrefetchInputs/PrefetchInputs.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

namespace {
struct PrefetchInputsPass : public megakernel::impl::TkPrefetchInputsBase<PrefetchInputsPass> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    if (kernel.getTarget().value_or("") == "cpu")
      return;
    kernel.walk([](TileOp tile) { tile.removePrefetchedAttr(); });
    KernelAccesses all(kernel);
    Epochs epochs, early;
    for (Operation &op : kernel.getBody().front()) {
      if (auto barrier = dyn_cast<BarrierOp>(op)) {
        early = epochs;
        epochs.pass(joinedBy(kernel, barrier.getScope()));
      }
      auto phase = dyn_cast<PhaseOp>(op);
      if (phase && isa_and_nonnull<BarrierOp>(phase->getPrevNode()))
        for (auto tile : phase.getBody().front().getOps<TileOp>())
          markInputs(kernel, all, early, tile);
    }
  }

private:
  // A tile op's first accesses are its inputs, in order.
  void markInputs(KernelOp kernel, const KernelAccesses &all, const Epochs &early, TileOp tile) {
    const Access *own = llvm::find_if(all.accesses, [&](const Access &access) { return all.ops[access.op] == tile; });
    SmallVector<int64_t> prefetched;
    for (int64_t index = 0, e = tile.getInputs().size(); index < e; ++index) {
      Access read = own[index];
      read.epochs = early;
      if (!isWrittenJustBefore(all, read, placementOf(kernel)))
        prefetched.push_back(index);
    }
    numPrefetched += prefetched.size();
    if (!prefetched.empty())
      tile.setPrefetched(prefetched);
  }

  // Nothing orders an earlier write with the read if that comes before the barrier.
  static bool isWrittenJustBefore(const KernelAccesses &all, const Access &read, const Placement &placement) {
    return llvm::any_of(all.accesses, [&](const Access &access) {
      return access.isWrite && access.op < read.op && !access.epochs.differ(read.epochs, SyncScope::Grid) &&
             !access.epochs.differ(read.epochs, scopeBetween(access, read, placement));
    });
  }
};
} // namespace
