// A reduction takes in what comes before it and what comes after it.
// RUN: tk-opt %s --tk-inline-pointwise --mlir-print-local-scope | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#one = affine_map<(d0) -> (d0)>

// CHECK-LABEL: megakernel.step @prologue_and_epilogue
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32> {{.*}}, %[[Y:.*]]: tensor<4xf32>
// CHECK-NEXT: %[[R:.*]]:2 = megakernel.fused(%[[A:.*]] = %[[X]] : tensor<4x8xf32>, %[[B:.*]] = %[[Y]] : tensor<4xf32>)
// CHECK-SAME: -> (tensor<4xf32>, tensor<4xf32>) {
// The prologue squares,
// CHECK: %[[SQUARE:.*]] = linalg.generic {{.*}} ins(%[[A]] : tensor<4x8xf32>)
// CHECK: arith.mulf
// the reduction sums,
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}}"reduction"]} ins(%[[SQUARE]] : tensor<4x8xf32>)
// CHECK: arith.addf
// the epilogue subtracts.
// CHECK: %[[DIFF:.*]] = linalg.generic {{.*}} ins(%[[SUM]], %[[B]] : tensor<4xf32>, tensor<4xf32>)
// CHECK: arith.subf
// CHECK: megakernel.yield %[[SUM]], %[[DIFF]]
// CHECK: megakernel.return %[[R]]#0, %[[R]]#1
megakernel.step @prologue_and_epilogue(%x: tensor<4x8xf32> {megakernel.role = #megakernel.role<batch>},
                                       %y: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>},
        tensor<4xf32> {megakernel.role = #megakernel.role<output>}) {
  %zero = arith.constant dense<0.0> : tensor<4xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %p = arith.mulf %in, %in : f32
    linalg.yield %p : f32
  } -> tensor<4x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<4x8xf32>) outs(%zero : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %p = arith.addf %in, %out : f32
    linalg.yield %p : f32
  } -> tensor<4xf32>
  %d = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%r, %y : tensor<4xf32>, tensor<4xf32>) outs(%zero : tensor<4xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %p = arith.subf %in, %in2 : f32
    linalg.yield %p : f32
  } -> tensor<4xf32>
  megakernel.return %r, %d : tensor<4xf32>, tensor<4xf32>
}
