// What must not share a fused op.
// RUN: tk-opt %s --tk-inline-pointwise --mlir-print-local-scope | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>
#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d2, d1)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>

// An op that reads the product at another element than it computes needs the product in memory first. The same holds
// where that element comes in through the output operand.
// CHECK-LABEL: megakernel.step @transposed
// CHECK: %[[P:.*]] = megakernel.fused({{.*}}) -> tensor<4x4xf32> {
// CHECK: "reduction"
// CHECK: megakernel.fused(%{{.*}} = %[[P]] : tensor<4x4xf32>) -> tensor<4x4xf32> {
// CHECK-NOT: "reduction"
// CHECK: arith.addf
// CHECK: megakernel.fused(%{{.*}} = %[[P]] : tensor<4x4xf32>) -> tensor<4x4xf32> {
// CHECK-NOT: "reduction"
// CHECK: arith.subf
megakernel.step @transposed(%x: tensor<4x4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4x4xf32> {megakernel.role = #megakernel.role<output>},
        tensor<4x4xf32> {megakernel.role = #megakernel.role<output>}) {
  %zero = arith.constant dense<0.0> : tensor<4x4xf32>
  %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %x : tensor<4x4xf32>, tensor<4x4xf32>) outs(%zero : tensor<4x4xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %m = arith.mulf %in, %in2 : f32
    %s = arith.addf %m, %out : f32
    linalg.yield %s : f32
  } -> tensor<4x4xf32>
  %s = linalg.generic {indexing_maps = [#id, #t, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %p : tensor<4x4xf32>, tensor<4x4xf32>) outs(%zero : tensor<4x4xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %y = arith.addf %in, %in2 : f32
    linalg.yield %y : f32
  } -> tensor<4x4xf32>
  %turned = linalg.generic {indexing_maps = [#t, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<4x4xf32>) outs(%zero : tensor<4x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<4x4xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<4x4xf32>) outs(%turned : tensor<4x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = arith.subf %in, %out : f32
    linalg.yield %y : f32
  } -> tensor<4x4xf32>
  megakernel.return %s, %d : tensor<4x4xf32>, tensor<4x4xf32>
}
