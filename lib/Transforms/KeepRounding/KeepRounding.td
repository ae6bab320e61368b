include "mlir/Pass/PassBase.td"

def TkKeepRounding : Pass<"tk-keep-rounding"> {
  let summary = "let each operation round as eager PyTorch does";
  let description = [{
    Takes all fast-math flags off. The upstream passes that compute bfloat16 and float16 in float32 mark the conversions
    as contractible; a conversion to bfloat16 and back would then fold away as soon as a producer meets its consumer in
    one body, and `x == x.amax()` would no longer hold for the element that is the maximum.

    Never fails.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}
