//===- InsertBarriers.cpp - barriers that the data flow needs -------------===//

#include "lib/Transforms/InsertBarriers/InsertBarriers.h"

#include "dialects/Megakernel/MegakernelDialect.h"
#include "lib/Analysis/KernelAccesses.h"

namespace mlir::megakernel {
#define GEN_PASS_DEF_TKINSERTBARRIERS
#include "lib/Transforms/InsertBarriers/InsertBarriers.h.inc"
} // namespace mlir::megakernel

using namespace mlir;
using namespace mlir::megakernel;
using trainkernel::Access;

static bool conflicts(ArrayRef<Access> pending, ArrayRef<Access> next) {
  return llvm::any_of(pending, [&](const Access &a) {
    return llvm::any_of(next, [&](const Access &b) { return (a.isWrite || b.isWrite) && a.range.overlaps(b.range); });
  });
}

namespace {
struct InsertBarriersPass : public megakernel::impl::TkInsertBarriersBase<InsertBarriersPass> {
  void runOnOperation() override {
    KernelOp kernel = getOperation();
    KernelAccesses all(kernel);
    Scope scope = kernel.getJoiningScope();
    SmallVector<Access> pending;
    for (auto phase : kernel.getBody().front().getOps<PhaseOp>()) {
      SmallVector<Access> next;
      for (const Access &access : all.accesses)
        if (all.ops[access.op]->getParentOp() == phase)
          next.push_back(access);
      if (conflicts(pending, next)) {
        OpBuilder builder(phase);
        BarrierOp::create(builder, phase.getLoc(), scope);
        ++numBarriers;
        pending.clear();
      }
      llvm::append_range(pending, next);
    }
  }
};
} // namespace
