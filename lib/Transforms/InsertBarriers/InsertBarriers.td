include "mlir/Pass/PassBase.td"

def TkInsertBarriers : Pass<"tk-insert-barriers", "::mlir::megakernel::KernelOp"> {
  let summary = "insert the barriers that the data flow needs";
  let description = [{
    Needs a kernel whose commits are resolved. Inserts a `megakernel.barrier` before each phase that conflicts with
    an access since the last barrier: one writes what the other reads or writes. An output that may be the memory of
    the state that it replaces counts as that memory.

    The scope is the least that joins every CTA: cta for a grid of one, cluster where the grid is one cluster, grid
    otherwise. Never fails.
  }];
  let statistics = [Statistic<"numBarriers", "barriers", "Barriers inserted">];
}
