// What is left as it is, each for one reason alone.
// RUN: tk-opt %s --tk-split-reductions="max-reduced=11 max-results=1" | FileCheck %s
// RUN: tk-opt %s --tk-split-reductions="max-reduced=10 max-results=2" | FileCheck %s --check-prefix=LOWER

#all = affine_map<(d0, d1) -> (d0, d1)>
#one = affine_map<(d0, d1) -> ()>
#line = affine_map<(d0) -> (d0)>
#point = affine_map<(d0) -> ()>
#all3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#first = affine_map<(d0, d1, d2) -> (d0)>

// One loop alone; a product of two tensors; what is not one op with a neutral element; many results; few elements.
// CHECK-LABEL: megakernel.step @apart
// CHECK-COUNT-5: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: megakernel.return
// The last two are, once the limits allow it: three ops for one, to fill, to reduce and to finish.
// LOWER-LABEL: megakernel.step @apart
// LOWER-COUNT-9: linalg.generic
// LOWER-NOT: linalg.generic
// LOWER: megakernel.return
megakernel.step @apart(%v: tensor<12xf32> {megakernel.role = #megakernel.role<batch>},
                       %x: tensor<3x4xf32> {megakernel.role = #megakernel.role<batch>},
                       %y: tensor<2x3x4xf32> {megakernel.role = #megakernel.role<batch>},
                       %z: tensor<11x1xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<f32> {megakernel.role = #megakernel.role<output>},
        tensor<f32> {megakernel.role = #megakernel.role<output>},
        tensor<f32> {megakernel.role = #megakernel.role<output>},
        tensor<2xf32> {megakernel.role = #megakernel.role<output>},
        tensor<f32> {megakernel.role = #megakernel.role<output>}) {
  %zero = arith.constant dense<0.0> : tensor<f32>
  %zeros = arith.constant dense<0.0> : tensor<2xf32>
  %a = linalg.generic {indexing_maps = [#line, #point], iterator_types = ["reduction"]}
      ins(%v : tensor<12xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %b = linalg.generic {indexing_maps = [#all, #all, #one], iterator_types = ["reduction", "reduction"]}
      ins(%x, %x : tensor<3x4xf32>, tensor<3x4xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %m = arith.mulf %in, %in2 : f32
    %s = arith.addf %m, %out : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %c = linalg.generic {indexing_maps = [#all, #one], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<3x4xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.subf %out, %in : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %d = linalg.generic {indexing_maps = [#all3, #first], iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%y : tensor<2x3x4xf32>) outs(%zeros : tensor<2xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<2xf32>
  %e = linalg.generic {indexing_maps = [#all, #one], iterator_types = ["reduction", "reduction"]}
      ins(%z : tensor<11x1xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  megakernel.return %a, %b, %c, %d, %e : tensor<f32>, tensor<f32>, tensor<f32>, tensor<2xf32>, tensor<f32>
}
