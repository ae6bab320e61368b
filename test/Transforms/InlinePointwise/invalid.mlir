// RUN: tk-opt %s --tk-inline-pointwise --split-input-file --verify-diagnostics

megakernel.step @named_op(%x: tensor<4xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>}) {
  %e = tensor.empty() : tensor<4xf32>
  // expected-error @below {{'linalg.exp' is not supported in a training step, expected structured linalg on tensors}}
  %y = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  megakernel.return %y : tensor<4xf32>
}

// -----

#window = affine_map<(d0, d1) -> (d0 + d1)>
#kernel = affine_map<(d0, d1) -> (d1)>
#row = affine_map<(d0, d1) -> (d0)>
megakernel.step @convolution(%x: tensor<5xf32> {megakernel.role = #megakernel.role<batch>},
                             %k: tensor<2xf32> {megakernel.role = #megakernel.role<batch>})
    -> (tensor<4xf32> {megakernel.role = #megakernel.role<output>}) {
  %zero = arith.constant dense<0.0> : tensor<4xf32>
  // expected-error @below {{has the indexing map affine_map<(d0, d1) -> (d0 + d1)> in a fused region, expected a projected permutation (F3)}}
  %y = linalg.generic {indexing_maps = [#window, #kernel, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x, %k : tensor<5xf32>, tensor<2xf32>) outs(%zero : tensor<4xf32>) {
  ^bb0(%in: f32, %w: f32, %out: f32):
    %p = arith.mulf %in, %w : f32
    %s = arith.addf %p, %out : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  megakernel.return %y : tensor<4xf32>
}
