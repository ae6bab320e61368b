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
    bool isFirst = true;
    for (auto phase : kernel.getBody().front().getOps<PhaseOp>()) {
      // The first phase stands behind the barrier that ends the step before, and what that wrote last may still be on
      // its way when others are reached.
      bool isBehindRepeat = isFirst && kernel.getRepeat();
      if (isBehindRepeat || isa_and_nonnull<BarrierOp>(phase->getPrevNode()))
        for (auto tile : phase.getBody().front().getOps<TileOp>())
          markInputs(kernel, all, tile, kernel.getRepeat() ? 1 : 0);
      isFirst = false;
    }
  }

private:
  // A tile op's first accesses in a step are its inputs, in order.
  void markInputs(KernelOp kernel, const KernelAccesses &all, TileOp tile, unsigned step) {
    const Access *own = llvm::find_if(
        all.accesses, [&](const Access &access) { return access.step == step && all.ops[access.op].op == tile; });
    SmallVector<int64_t> prefetched;
    for (int64_t index = 0, e = tile.getInputs().size(); index < e; ++index) {
      Access read = own[index];
      read.epochs = all.ops[read.op].earlyEpochs;
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
