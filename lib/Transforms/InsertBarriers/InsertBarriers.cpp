//===- InsertBarriers.cpp - barriers that the data flow needs -------------===//

#include "lib/Transforms/InsertBarriers/InsertBarriers.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"
#include "lib/Analysis/TileFootprint.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKINSERTBARRIERS
#include "lib/Transforms/InsertBarriers/InsertBarriers.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using namespace trainkernel;

namespace {
/// Walks the phases of a kernel with the barriers that it has inserted so far.
class BarrierInserter {
public:
  explicit BarrierInserter(KernelOp kernel) : kernel(kernel), all(kernel), placement(placementOf(kernel)) {}

  /// Returns how many barriers were inserted.
  int64_t run() {
    int64_t inserted = 0;
    size_t next = 0;
    for (auto phase : kernel.getBody().front().getOps<PhaseOp>()) {
      size_t begin = next;
      while (next < all.accesses.size() && isOf(phase, all.accesses[next]))
        ++next;
      SyncScope needed = scopeBefore(begin, next);
      if (needed != SyncScope::None) {
        OpBuilder builder(phase);
        Scope scope = barrierScope(kernel, needed);
        BarrierOp::create(builder, phase.getLoc(), scope);
        epochs.pass(joinedBy(kernel, scope));
        ++inserted;
      }
      for (Access &access : MutableArrayRef<Access>(all.accesses).slice(begin, next - begin))
        access.epochs = epochs;
    }
    return inserted;
  }

private:
  // Of a kernel that repeats, the second step has the barriers of the first one.
  bool isOf(PhaseOp phase, const Access &access) const {
    return access.step == 0 && all.ops[access.op].op->getParentOp() == phase;
  }

  // The least scope that orders the accesses from `begin` to `end` with all before them.
  SyncScope scopeBefore(size_t begin, size_t end) {
    SyncScope needed = SyncScope::None;
    for (size_t i = begin; i < end; ++i)
      for (size_t j = 0; j < begin; ++j) {
        const Access &earlier = all.accesses[j];
        // Whatever the two need is there already, or asked for.
        SyncScope most = std::max(needed, orderedUpTo(earlier));
        if (most == SyncScope::Grid)
          continue;
        SyncScope scope = scopeBetween(earlier, all.accesses[i], placement);
        if (scope > most)
          needed = scope;
      }
    return needed;
  }

  // The widest barrier since an earlier access.
  SyncScope orderedUpTo(const Access &earlier) const {
    for (SyncScope scope : {SyncScope::Grid, SyncScope::Cluster, SyncScope::Cta})
      if (earlier.epochs.differ(epochs, scope))
        return scope;
    return SyncScope::None;
  }

  KernelOp kernel;
  KernelAccesses all;
  Placement placement;
  Epochs epochs;
};

struct InsertBarriersPass : public megakernel::impl::TkInsertBarriersBase<InsertBarriersPass> {
  void runOnOperation() override { numBarriers += BarrierInserter(getOperation()).run(); }
};
} // namespace
