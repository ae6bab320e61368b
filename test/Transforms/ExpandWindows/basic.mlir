// RUN: tk-opt %s --tk-expand-windows | FileCheck %s

#image = affine_map<(n, h, w, f, c, i, j) -> (n, c, h * 2 + i, w * 2 + j)>
#kernel = affine_map<(n, h, w, f, c, i, j) -> (f, c, i, j)>
#result = affine_map<(n, h, w, f, c, i, j) -> (n, f, h, w)>

// The windows have the loops of their map as dimensions, and the reduction reads them in that order.
// CHECK-DAG: #[[FROM:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1 * 2 + d4, d2 * 2 + d5)>
// CHECK-DAG: #[[READ:.*]] = affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d2, d4, d5, d6)>
// CHECK: megakernel.step @convolution
// CHECK: %[[WINDOWS:.*]] = linalg.generic {indexing_maps = [#[[FROM]], #{{.*}}], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel"]}
// CHECK-SAME: ins(%{{.*}} : tensor<2x3x9x9xf32>) outs(%{{.*}} : tensor<2x4x4x3x3x3xf32>)
// CHECK: linalg.generic {indexing_maps = [#[[READ]], #{{.*}}, #{{.*}}]
// CHECK-SAME: ins(%[[WINDOWS]], %{{.*}} : tensor<2x4x4x3x3x3xf32>, tensor<8x3x3x3xf32>)
megakernel.step @convolution(%x: tensor<2x3x9x9xf32> {megakernel.role = #megakernel.role<batch>},
                             %w: tensor<8x3x3x3xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<2x8x4x4xf32> {megakernel.role = #megakernel.role<output>}) {
  %zero = arith.constant dense<0.0> : tensor<2x8x4x4xf32>
  %y = linalg.generic {indexing_maps = [#image, #kernel, #result],
                       iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x3x9x9xf32>, tensor<8x3x3x3xf32>) outs(%zero : tensor<2x8x4x4xf32>) {
  ^bb0(%element: f32, %weight: f32, %sum: f32):
    %product = arith.mulf %element, %weight : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> tensor<2x8x4x4xf32>
  megakernel.return %y : tensor<2x8x4x4xf32>
}
