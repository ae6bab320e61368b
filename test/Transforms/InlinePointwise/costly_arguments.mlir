// RUN: tk-opt %s --tk-inline-pointwise | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>

// A product that reads arguments alone does not wait for a phase of its own operand, however costly.
// CHECK-LABEL: megakernel.step @first
// CHECK: megakernel.fused
// CHECK: math.exp
// CHECK: arith.mulf
// CHECK-NOT: megakernel.fused
// CHECK: megakernel.return
megakernel.step @first(%x: tensor<32x64xf32> {megakernel.role = #megakernel.role<batch>},
                       %w: tensor<64x16xf32> {megakernel.role = #megakernel.role<constant>})
    -> (tensor<32x16xf32> {megakernel.role = #megakernel.role<output>}) {
  %e = tensor.empty() : tensor<32x64xf32>
  %exp = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<32x64xf32>) outs(%e : tensor<32x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %h = arith.addf %in, %in : f32
    %v = math.exp %h : f32
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
