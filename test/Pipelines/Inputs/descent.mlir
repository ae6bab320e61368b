// One step of descent: loss = sum(x @ w), w := w - 0.5 * x^T @ ones, as a capture leaves it.
module attributes {megakernel.manifest = "{\22name\22:\22step\22}"} {
  func.func @step(%w: tensor<8x8xf32> {megakernel.role = "state", megakernel.path = "state.w"},
                  %x: tensor<16x8xf32> {megakernel.role = "batch", megakernel.path = "x"})
      -> (tensor<f32> {megakernel.role = "loss", megakernel.path = "out[0]"},
          tensor<8x8xf32> {megakernel.role = "new_state", megakernel.path = "out[1].w", megakernel.updates = 0 : i64}) {
    %zero = arith.constant 0.0 : f32
    %ones = arith.constant dense<1.0> : tensor<16x8xf32>
    %rate = arith.constant 0.5 : f64
    %e = tensor.empty() : tensor<16x8xf32>
    %init = linalg.fill ins(%zero : f32) outs(%e : tensor<16x8xf32>) -> tensor<16x8xf32>
    %y = linalg.matmul ins(%x, %w : tensor<16x8xf32>, tensor<8x8xf32>) outs(%init : tensor<16x8xf32>) -> tensor<16x8xf32>
    %s = tensor.empty() : tensor<f32>
    %start = linalg.fill ins(%zero : f32) outs(%s : tensor<f32>) -> tensor<f32>
    %loss = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>],
                            iterator_types = ["reduction", "reduction"]}
        ins(%y : tensor<16x8xf32>) outs(%start : tensor<f32>) {
    ^bb0(%in: f32, %out: f32):
      %t = arith.addf %in, %out : f32
      linalg.yield %t : f32
    } -> tensor<f32>
    %et = tensor.empty() : tensor<8x16xf32>
    %xt = linalg.transpose ins(%x : tensor<16x8xf32>) outs(%et : tensor<8x16xf32>) permutation = [1, 0]
    %eg = tensor.empty() : tensor<8x8xf32>
    %ginit = linalg.fill ins(%zero : f32) outs(%eg : tensor<8x8xf32>) -> tensor<8x8xf32>
    %g = linalg.matmul ins(%xt, %ones : tensor<8x16xf32>, tensor<16x8xf32>) outs(%ginit : tensor<8x8xf32>) -> tensor<8x8xf32>
    %new = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>,
                                            affine_map<(d0, d1) -> (d0, d1)>],
                           iterator_types = ["parallel", "parallel"]}
        ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%eg : tensor<8x8xf32>) {
    ^bb0(%old: f32, %d: f32, %out: f32):
      %r = arith.truncf %rate : f64 to f32
      %m = arith.mulf %d, %r : f32
      %n = arith.subf %old, %m : f32
      linalg.yield %n : f32
    } -> tensor<8x8xf32>
    return %loss, %new : tensor<f32>, tensor<8x8xf32>
  }
}
