// RUN: tk-opt %s --tk-split-reductions="max-reduced=11 max-results=2" --mlir-print-local-scope | FileCheck %s

#all = affine_map<(d0, d1) -> (d0, d1)>
#one = affine_map<(d0, d1) -> ()>
#all3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#mid = affine_map<(d0, d1, d2) -> (d1)>

// The inner loop is reduced first, from zero, to one partial sum per row: here the squares are taken. The second
// reduction adds the partial sums, and only here, to what the sum started from; the additions keep their flags.
// CHECK-LABEL: megakernel.step @sum_of_squares
// CHECK-SAME: (%[[X:.*]]: tensor<3x4xf32>
// CHECK: %[[START:.*]] = arith.constant dense<5.000000e+00> : tensor<f32>
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: %[[FILLED:.*]] = linalg.generic {{.*}} ins(%[[ZERO]] : f32) outs(%{{.*}} : tensor<3xf32>)
// CHECK: %[[PARTIAL:.*]] = linalg.generic
// CHECK-SAME: indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>]
// CHECK-SAME: iterator_types = ["parallel", "reduction"]
// CHECK-SAME: ins(%[[X]] : tensor<3x4xf32>) outs(%[[FILLED]] : tensor<3xf32>)
// CHECK: arith.mulf
// CHECK: arith.addf %{{.*}}, %{{.*}} fastmath<reassoc> : f32
// CHECK: %[[TOTAL:.*]] = linalg.generic
// CHECK-SAME: indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>]
// CHECK-SAME: iterator_types = ["reduction"]
// CHECK-SAME: ins(%[[PARTIAL]] : tensor<3xf32>) outs(%[[START]] : tensor<f32>)
// CHECK-NOT: arith.mulf
// CHECK: arith.addf %{{.*}}, %{{.*}} fastmath<reassoc> : f32
// CHECK: megakernel.return %[[TOTAL]] : tensor<f32>
megakernel.step @sum_of_squares(%x: tensor<3x4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<loss>}) {
  %start = arith.constant dense<5.0> : tensor<f32>
  %s = linalg.generic {indexing_maps = [#all, #one], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<3x4xf32>) outs(%start : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.mulf %in, %in : f32
    %a = arith.addf %m, %out fastmath<reassoc> : f32
    linalg.yield %a : f32
  } -> tensor<f32>
  megakernel.return %s : tensor<f32>
}

// The partial results come after the dimensions that stay, and a maximum of integers starts from the least one.
// CHECK-LABEL: megakernel.step @maxima
// CHECK-SAME: (%[[X:.*]]: tensor<3x2x4xi32>
// CHECK: %[[LEAST:.*]] = arith.constant -2147483648 : i32
// CHECK: %[[FILLED:.*]] = linalg.generic {{.*}} ins(%[[LEAST]] : i32) outs(%{{.*}} : tensor<2x3xi32>)
// CHECK: %[[PARTIAL:.*]] = linalg.generic
// CHECK-SAME: affine_map<(d0, d1, d2) -> (d1, d0)>]
// CHECK-SAME: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK-SAME: outs(%[[FILLED]] : tensor<2x3xi32>)
// CHECK: arith.maxsi
// CHECK: linalg.generic
// CHECK-SAME: indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>]
// CHECK-SAME: iterator_types = ["parallel", "reduction"]
// CHECK-SAME: ins(%[[PARTIAL]] : tensor<2x3xi32>)
// CHECK: arith.maxsi
megakernel.step @maxima(%x: tensor<3x2x4xi32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<2xi32> {megakernel.role = #megakernel.role<output>}) {
  %start = arith.constant dense<7> : tensor<2xi32>
  %s = linalg.generic {indexing_maps = [#all3, #mid], iterator_types = ["reduction", "parallel", "reduction"]}
      ins(%x : tensor<3x2x4xi32>) outs(%start : tensor<2xi32>) {
  ^bb0(%in: i32, %out: i32):
    %a = arith.maxsi %in, %out : i32
    linalg.yield %a : i32
  } -> tensor<2xi32>
  megakernel.return %s : tensor<2xi32>
}
