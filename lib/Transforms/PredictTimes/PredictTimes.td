include "mlir/Pass/PassBase.td"

def TkPredictTimes : Pass<"tk-predict-times", "::mlir::megakernel::KernelOp"> {
  let summary = "say how long each part of a schedule is predicted to take";
  let description = [{
    Needs a kernel with its barriers. Sets `predicted` on each phase, `predicted_ns` on
    each barrier, and `launch_ns` and `predicted_ns` (the sum of all) on the kernel. A tile op keeps the `predicted`
    that the planner gave it, less what it saves where its operands lie on chip; one without, such as the copy of a new
    state, gets it from the same cost model. A phase has what that CTA spends in it which the next barrier that joins
    all CTAs waits for, the one that is busiest since the last such barrier. Reports show these times; no code depends
    on them. A kernel without a known `target` is left alone.

    Never fails.
  }];
}
