include "mlir/Pass/PassBase.td"

def TkInsertBarriers : Pass<"tk-insert-barriers", "::mlir::megakernel::KernelOp"> {
  let summary = "insert the barriers that the data flow needs";
  let description = [{
    Needs a kernel whose commits are resolved. Inserts a `megakernel.barrier` before each phase that conflicts with
    an access since the last barrier: one writes what the other reads or writes. An output that may be the memory of
    the state that it replaces counts as that memory.

    The scope is the least that orders all that meet there: cta where each conflicting element is touched by one CTA
    on both sides, cluster where the CTAs that touch it are of one cluster, grid otherwise. Which CTA touches which
    element follows from the tiles, their placement, and the indexing maps and views through which an op reads; where
    it cannot be told, all CTAs may touch all. On a CPU the number of workers is not known, so only tiles of equal
    places in the placement count as one worker's. Never fails.
  }];
  let statistics = [Statistic<"numBarriers", "barriers", "Barriers inserted">];
}
