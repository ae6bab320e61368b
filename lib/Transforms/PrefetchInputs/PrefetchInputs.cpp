//===- PrefetchInputs.cpp - inputs that need not wait for a barrier -------===//

#include "lib/Transforms/PrefetchInputs/PrefetchInputs.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKPREFETCHINPUTS
#include "lib/Transforms/PrefetchInputs/PrefetchInputs.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using trainkernel::Access;

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
      // The first phase stands behind the barrier that ends the step before.
      bool isBehindRepeat = isFirst && kernel.getRepeat();
      if (isBehindRepeat || isa_and_nonnull<BarrierOp>(phase->getPrevNode()))
        for (auto tile : phase.getBody().front().getOps<TileOp>())
          markInputs(all, tile, isBehindRepeat);
      isFirst = false;
    }
  }

private:
  // A tile op's first accesses in a step are its inputs, in order.
  void markInputs(const KernelAccesses &all, TileOp tile, unsigned step) {
    const Access *own = llvm::find_if(
        all.accesses, [&](const Access &access) { return access.step == step && all.ops[access.op] == tile; });
    SmallVector<int64_t> prefetched;
    for (int64_t index = 0, e = tile.getInputs().size(); index < e; ++index)
      if (!isWrittenJustBefore(all, own[index]))
        prefetched.push_back(index);
    numPrefetched += prefetched.size();
    if (!prefetched.empty())
      tile.setPrefetched(prefetched);
  }

  static bool isWrittenJustBefore(const KernelAccesses &all, const Access &read) {
    return llvm::any_of(all.accesses, [&](const Access &access) {
      return access.isWrite && access.epoch + 1 == read.epoch && access.range.overlaps(read.range);
    });
  }
};
} // namespace
