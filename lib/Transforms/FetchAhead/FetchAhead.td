include "mlir/Pass/PassBase.td"

def TkFetchAhead : Pass<"tk-fetch-ahead", "::mlir::megakernel::KernelOp"> {
  let summary = "bring inputs on chip while the phase before is at work";
  let description = [{
    Needs a kernel with barriers. Behind a barrier that joins no more than the threads of a CTA, a phase would wait for
    memory as long as it computes. What its tiles read of rows of their own, and what was there before the phase ahead
    of it, is copied into a buffer in shared memory by a tile op of that phase, as far as shared memory holds it. What
    is copied is also there for the phases that follow, as long as there is room.

    The operands of contractions are left alone: those have ways of their own. So are arguments whose last element is
    not read: a sliced one may end before it. A kernel for the CPU is left alone, too.
    Never fails.
  }];
  let statistics = [Statistic<"numFetched", "fetched", "Inputs that are copied ahead of their phase">];
}
