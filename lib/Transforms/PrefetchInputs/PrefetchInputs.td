include "mlir/Pass/PassBase.td"

def TkPrefetchInputs : Pass<"tk-prefetch-inputs", "::mlir::megakernel::KernelOp"> {
  let summary = "find inputs that can be read before the barrier ahead of their phase";
  let description = [{
    Needs a kernel with its barriers. Sets `prefetched` on each tile op of a phase that stands behind a barrier: the
    inputs whose writers are ordered with it by an earlier barrier already. They can be on their way while the CTA
    waits for the others. A kernel for the CPU is left alone.

    Never fails.
  }];
  let statistics = [Statistic<"numPrefetched", "prefetched", "Inputs that can be read ahead of a barrier">];
}
