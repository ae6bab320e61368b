// Reshapes are read through; those of results stay outside of fused ops.
// RUN: tk-opt %s --tk-inline-pointwise --mlir-print-local-scope | FileCheck %s

#id = affine_map<(d0) -> (d0)>

// Several reshapes of results stay after what they read.
// CHECK-LABEL: megakernel.step @results
// CHECK-SAME: (%[[X:.*]]: tensor<2x3xf32>
// CHECK: %[[Y:.*]] = megakernel.fused(%[[A:.*]] = %[[X]] : tensor<2x3xf32>) -> tensor<6xf32> {
// CHECK: tensor.collapse_shape %[[A]]
// CHECK: arith.negf
// CHECK: %[[OLD:.*]] = tensor.collapse_shape %[[X]]
// CHECK-NEXT: %[[BACK:.*]] = tensor.expand_shape %[[Y]] {{\[\[}}0, 1]] output_shape [3, 2]
// CHECK-NEXT: megakernel.return %[[OLD]], %[[BACK]]
megakernel.step @results(%x: tensor<2x3xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<6xf32> {megakernel.role = #megakernel.role<output>},
        tensor<3x2xf32> {megakernel.role = #megakernel.role<output>}) {
  %flat = tensor.collapse_shape %x [[0, 1]] : tensor<2x3xf32> into tensor<6xf32>
  %e = tensor.empty() : tensor<6xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%flat : tensor<6xf32>) outs(%e : tensor<6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.negf %in : f32
    linalg.yield %y : f32
  } -> tensor<6xf32>
  %back = tensor.expand_shape %n [[0, 1]] output_shape [3, 2] : tensor<6xf32> into tensor<3x2xf32>
  megakernel.return %flat, %back : tensor<6xf32>, tensor<3x2xf32>
}

// A slice has a layout of its own, so it is computed; so is a constant.
// CHECK-LABEL: megakernel.step @slice_and_constant
// CHECK-SAME: (%[[X:.*]]: tensor<6xf32>
// CHECK: %[[S:.*]] = megakernel.fused(%[[A:.*]] = %[[X]] : tensor<6xf32>) -> tensor<4xf32> {
// CHECK-NEXT: %[[C:.*]] = tensor.extract_slice %[[A]][1] [4] [1]
// CHECK-NEXT: megakernel.yield %[[C]]
// CHECK: %[[K:.*]] = megakernel.fused() -> tensor<f32> {
// CHECK-NEXT: arith.constant dense<1.000000e+00>
// CHECK: %[[V:.*]] = tensor.expand_shape %[[S]]
// CHECK-NEXT: megakernel.return %[[V]], %[[K]]
megakernel.step @slice_and_constant(%x: tensor<6xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<2x2xf32> {megakernel.role = #megakernel.role<output>},
        tensor<f32> {megakernel.role = #megakernel.role<output>}) {
  %one = arith.constant dense<1.0> : tensor<f32>
  %s = tensor.extract_slice %x[1] [4] [1] : tensor<6xf32> to tensor<4xf32>
  %v = tensor.expand_shape %s [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xf32>
  megakernel.return %v, %one : tensor<2x2xf32>, tensor<f32>
}

// An argument that is returned needs no fused op.
// CHECK-LABEL: megakernel.step @argument
// CHECK-SAME: (%[[X:.*]]: tensor<6xf32>
// CHECK-NEXT: megakernel.return %[[X]]
megakernel.step @argument(%x: tensor<6xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<6xf32> {megakernel.role = #megakernel.role<output>}) {
  megakernel.return %x : tensor<6xf32>
}
