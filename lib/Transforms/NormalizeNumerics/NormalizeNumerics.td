include "mlir/Pass/PassBase.td"

def TkNormalizeNumerics : Pass<"tk-normalize-numerics"> {
  let summary = "make accumulation and rounding explicit";
  let description = [{
    Brings linalg on tensors to the rounding that eager PyTorch has, in a form that later passes need no rule for:

    * a sum, product, maximum or minimum whose accumulator is bfloat16 or float16 accumulates in float32 and rounds
      once at the end;
    * a contraction of operands that were only widened from bfloat16 or float16 reads the narrow operands and
      widens inside its body, so that tensor cores can take it;
    * a Python scalar rounded in a body (`arith.truncf` of a float64 constant) becomes a float32 constant;
    * float64 becomes bfloat16 or float16 by way of float32;
    * bools are added by `arith.ori`;
    * an integer division (`arith.divsi`, `arith.remsi`) by zero gives 0, and one of the least integer by -1 wraps around,
      instead of stopping the process.

    Never fails. Example of the second: `linalg.matmul` on `f32` tensors that are `arith.extf` of `bf16` tensors
    becomes a `linalg.generic` on the `bf16` tensors whose body extends both, multiplies and adds in `f32`.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect",
                           "::mlir::arith::ArithDialect",
                           "::mlir::math::MathDialect", "::mlir::vector::VectorDialect"];
}
