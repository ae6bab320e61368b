include "mlir/Pass/PassBase.td"

def TkExpandWindows : Pass<"tk-expand-windows", "::mlir::megakernel::StepOp"> {
  let summary = "let reductions read whole tensors instead of windows";
  let description = [{
    A convolution or a pooling reads a tensor at sums of loops, so that its windows overlap. Needs `linalg.generic` ops.
    Each operand of a reduction whose indexing map is no projected permutation becomes an elementwise op over the loops
    of that map, which moves elements and computes nothing; the reduction reads that with a projected permutation. A
    convolution is a matrix product then. Fusion computes the elementwise op where it is read, so that windows take no
    memory.

    Leaves other ops alone. Never fails.

    Example:

    ```mlir
    megakernel.step @sums(%x: tensor<8xf32> {megakernel.role = #megakernel.role<batch>},
                          %zero: tensor<6xf32> {megakernel.role = #megakernel.role<batch>})
        -> (tensor<6xf32> {megakernel.role = #megakernel.role<output>}) {
      %window = tensor.empty() : tensor<3xf32>
      %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0 + d1)>, affine_map<(d0, d1) -> (d1)>,
                                            affine_map<(d0, d1) -> (d0)>],
                           iterator_types = ["parallel", "reduction"]}
          ins(%x, %window : tensor<8xf32>, tensor<3xf32>) outs(%zero : tensor<6xf32>) {
      ^bb0(%element: f32, %unused: f32, %sum: f32):
        %next = arith.addf %sum, %element : f32
        linalg.yield %next : f32
      } -> tensor<6xf32>
      megakernel.return %y : tensor<6xf32>
    }
    ```
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}
