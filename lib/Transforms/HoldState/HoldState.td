include "mlir/Pass/PassBase.td"

def TkHoldState : Pass<"tk-hold-state", "::mlir::megakernel::KernelOp"> {
  let summary = "hold trained state in shared memory from step to step";
  let description = [{
    Needs a kernel with barriers whose commits are resolved, and that is for launches of several steps; others are left
    alone. Where each tile that reads a state reads only what the same CTA wrote of it in the step before, the state
    gets a buffer in shared memory. The outputs are still written in each step, so that nothing is left to do at the end
    of a launch. As many states as fit are held: those that others than their own update read go first. Sets the
    kernel's `shared_bytes`.

    Never fails.
  }];
  let statistics = [Statistic<"numHeld", "held", "States in shared memory">];
}
