include "mlir/Pass/PassBase.td"

def TkKeepOperands : Pass<"tk-keep-operands", "::mlir::megakernel::KernelOp"> {
  let summary = "keep operands of contractions in shared memory";
  let description = [{
    Needs a kernel whose commits are resolved. Where contractions of several phases multiply tiles of whole rows with
    the same operand, computed from the same inputs on the same CTAs, such as the weights of a recurrent cell, the first
    one stages it at `kept_at` and the others have `reuses_kept`. What saves the most goes first, as far as shared memory
    holds it beside what the phases in between need. Sets the kernel's `shared_bytes`.

    A kernel for the CPU is left alone. Never fails.
  }];
  let statistics = [Statistic<"numReused", "reused", "Contractions that find an operand in shared memory">];
}
