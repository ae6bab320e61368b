include "mlir/Pass/PassBase.td"

def TkSplitReductions : Pass<"tk-split-reductions", "::mlir::megakernel::StepOp"> {
  let summary = "reduce a large tensor to few values in two stages";
  let description = [{
    A reduction to few results is work for few CTAs. Where it reduces more than `max-reduced` elements per result,
    over two loops or more, to at most `max-results` results, the inner loops are reduced first, to one partial result
    per index of the outermost loop; a second reduction finishes. The order of additions changes, the set does not.

    Leaves other reductions, contractions, and reductions by more than a single associative op alone. Never fails.
  }];
  let options = [
    Option<"maxReduced", "max-reduced", "int64_t", "65536", "Elements per result that one CTA may reduce">,
    Option<"maxResults", "max-results", "int64_t", "64", "Results up to which a reduction counts as small">
  ];
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::arith::ArithDialect"];
}
