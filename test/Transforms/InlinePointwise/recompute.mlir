// What is cheap and not returned is computed again in each of its readers.
// RUN: tk-opt %s --tk-inline-pointwise --mlir-print-local-scope | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#column = affine_map<(d0, d1) -> (d1)>

// CHECK-LABEL: megakernel.step @cheap
// CHECK: megakernel.fused({{.*}}) -> tensor<4xf32> {
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: megakernel.fused({{.*}}) -> tensor<8xf32> {
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK-NOT: megakernel.fused
megakernel.step @cheap(%x: tensor<4x8xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>},
        tensor<8xf32> {megakernel.role = #megakernel.role<output>}) {
  %z4 = arith.constant dense<0.0> : tensor<4xf32>
  %z8 = arith.constant dense<0.0> : tensor<8xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %p = arith.mulf %in, %in : f32
    linalg.yield %p : f32
  } -> tensor<4x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<4x8xf32>) outs(%z4 : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %p = arith.addf %in, %out : f32
    linalg.yield %p : f32
  } -> tensor<4xf32>
  %c = linalg.generic {indexing_maps = [#id, #column], iterator_types = ["reduction", "parallel"]}
      ins(%s : tensor<4x8xf32>) outs(%z8 : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %p = arith.addf %in, %out : f32
    linalg.yield %p : f32
  } -> tensor<8xf32>
  megakernel.return %r, %c : tensor<4xf32>, tensor<8xf32>
}

// Four exponentials are kept in memory instead.
// CHECK-LABEL: megakernel.step @expensive
// CHECK: %[[E:.*]] = megakernel.fused({{.*}}) -> tensor<4x8xf32> {
// CHECK-COUNT-4: math.exp
// CHECK: megakernel.fused({{.*}} = %[[E]] : tensor<4x8xf32>{{.*}}) -> tensor<4xf32> {
// CHECK-NOT: math.exp
megakernel.step @expensive(%x: tensor<4x8xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>}) {
  %z4 = arith.constant dense<0.0> : tensor<4xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %1 = math.exp %in : f32
    %2 = math.exp %1 : f32
    %3 = math.exp %2 : f32
    %4 = math.exp %3 : f32
    linalg.yield %4 : f32
  } -> tensor<4x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%s : tensor<4x8xf32>) outs(%z4 : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %p = arith.addf %in, %out : f32
    linalg.yield %p : f32
  } -> tensor<4xf32>
  megakernel.return %r : tensor<4xf32>
}
