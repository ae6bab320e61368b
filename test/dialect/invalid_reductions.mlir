// Reductions in a fused region: constraints F3 and F4.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @two(%x: tensor<4x4xf32>, %i: tensor<4xf32>) {
  // expected-error @below {{holds more than one reduction, expected at most one (F3)}}
  %y = megakernel.fused(%a = %x : tensor<4x4xf32>, %init = %i : tensor<4xf32>) -> tensor<4xf32> {
    %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<4x4xf32>) outs(%init : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
    } -> tensor<4xf32>
    // expected-note @below {{this is the second one}}
    %q = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<4x4xf32>) outs(%r : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
    } -> tensor<4xf32>
    megakernel.yield %q : tensor<4xf32>
  }
  return
}

// -----

#window = affine_map<(d0, d1) -> (d0 + d1)>
#kernel = affine_map<(d0, d1) -> (d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @window(%x: tensor<5xf32>, %w: tensor<2xf32>, %i: tensor<4xf32>) {
  %y = megakernel.fused(%a = %x : tensor<5xf32>, %b = %w : tensor<2xf32>, %init = %i : tensor<4xf32>)
      -> tensor<4xf32> {
    // expected-error @below {{has the indexing map affine_map<(d0, d1) -> (d0 + d1)> in a fused region, expected a projected permutation (F3)}}
    %r = linalg.generic {indexing_maps = [#window, #kernel, #row], iterator_types = ["parallel", "reduction"]}
        ins(%a, %b : tensor<5xf32>, tensor<2xf32>) outs(%init : tensor<4xf32>) {
    ^bb0(%in: f32, %k: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
    } -> tensor<4xf32>
    megakernel.yield %r : tensor<4xf32>
  }
  return
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @writes_reduced(%x: tensor<4x4xf32>) {
  %y = megakernel.fused(%a = %x : tensor<4x4xf32>) -> tensor<4x4xf32> {
    // expected-error @below {{has the reduction loop 1, expected results over all parallel loops and no other (F3)}}
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<4x4xf32>) outs(%a : tensor<4x4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
    } -> tensor<4x4xf32>
    megakernel.yield %r : tensor<4x4xf32>
  }
  return
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @other_shape(%x: tensor<4x3xf32>, %i: tensor<4xf32>) {
  // expected-error @below {{yields values of another shape than the reduction's result (F4)}}
  %y = megakernel.fused(%a = %x : tensor<4x3xf32>, %init = %i : tensor<4xf32>) -> tensor<4x3xf32> {
    %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%a : tensor<4x3xf32>) outs(%init : tensor<4xf32>) {
    ^bb0(%in: f32, %out: f32):
      %s = arith.addf %in, %out : f32
      linalg.yield %s : f32
    } -> tensor<4xf32>
    megakernel.yield %a : tensor<4x3xf32>
  }
  return
}
