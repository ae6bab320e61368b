include "mlir/Pass/PassBase.td"

def TkCommitState : Pass<"tk-commit-state", "::mlir::megakernel::KernelOp"> {
  let summary = "write new states in place where that is safe";
  let description = [{
    Needs a kernel before barriers are inserted. Leaves no `megakernel.commit`.

    A new state may be written straight to its output, which may be the memory of the old state, when every other
    op that reads the old state runs in an earlier phase and the computing op itself reads it only at the element
    that it writes. Otherwise the value stays in its buffer and is copied to the output after the last phase that
    reads the old state; a phase is added only where that is the last one. Where a new state is another state's old
    value, such as in a swap, the old value is first copied to a buffer.

    Never fails.
  }];
  let statistics = [
    Statistic<"numDirect", "direct commits", "New states written in place">,
    Statistic<"numStaged", "staged commits", "New states staged and copied">
  ];
}
