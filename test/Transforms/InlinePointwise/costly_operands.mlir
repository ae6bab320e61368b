// RUN: tk-opt %s --tk-inline-pointwise | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>

// exp(x - max) of what a reduction made costs more than the tiles of a product should do again: it is kept.
// CHECK-LABEL: megakernel.step @costly
// CHECK: %[[MAX:.*]] = megakernel.fused
// CHECK: arith.maximumf
// CHECK: %[[EXP:.*]] = megakernel.fused({{.*}} = %[[MAX]] : tensor<32xf32>)
// CHECK: math.exp
// CHECK: megakernel.fused(%{{.*}} = %[[EXP]] : tensor<32x64xf32>
// CHECK-NOT: math.exp
// CHECK: megakernel.return
megakernel.step @costly(%x: tensor<32x64xf32> {megakernel.role = #megakernel.role<batch>},
                        %w: tensor<64x16xf32> {megakernel.role = #megakernel.role<constant>})
    -> (tensor<32x16xf32> {megakernel.role = #megakernel.role<output>}) {
  %lowest = arith.constant dense<-1.0> : tensor<32xf32>
  %max = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<32x64xf32>) outs(%lowest : tensor<32xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %out : f32
    linalg.yield %m : f32
  } -> tensor<32xf32>
  %e = tensor.empty() : tensor<32x64xf32>
  %exp = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %max : tensor<32x64xf32>, tensor<32xf32>) outs(%e : tensor<32x64xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %d = arith.subf %in, %in2 : f32
    %v = math.exp %d : f32
    linalg.yield %v : f32
  } -> tensor<32x64xf32>
  %zero = arith.constant dense<0.0> : tensor<32x16xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%exp, %w : tensor<32x64xf32>, tensor<64x16xf32>) outs(%zero : tensor<32x16xf32>) {
  ^bb0(%in: f32, %in2: f32, %out: f32):
    %p = arith.mulf %in, %in2 : f32
    %s = arith.addf %p, %out : f32
    linalg.yield %s : f32
  } -> tensor<32x16xf32>
  megakernel.return %y : tensor<32x16xf32>
}
