include "mlir/Pass/PassBase.td"

def TkInlinePointwise : Pass<"tk-inline-pointwise", "::mlir::megakernel::StepOp"> {
  let summary = "group pointwise ops with the reductions that they feed or follow";
  let description = [{
    Needs a step whose compute is `linalg.generic`, tensor views and constants. Leaves `megakernel.fused` ops: each
    reduction or contraction with the pointwise ops before it (its prologue) and after it (its epilogue), and
    pointwise ops alone where neither is possible. What flows inside a fused op never reaches memory.

    A pointwise op joins an epilogue when it reads a value of that group at the element that it computes, and
    nothing else that it reads depends on that group. Otherwise, where it is cheap and not a result of the step, it
    is computed again inside every reader. Views of step results stay outside.

    Fails on an op of another kind: the step uses something that the importer should have lowered or refused.
  }];
  let dependentDialects = ["::mlir::megakernel::MegakernelDialect"];
  let statistics = [
    Statistic<"numFused", "fused ops", "Number of fused ops formed">,
    Statistic<"numInlined", "inlined ops", "Number of pointwise ops that share a fused op with others">
  ];
}
