// Bodies that have no code, named by their op.
// RUN: tk-opt %s --convert-megakernel-to-cpu --split-input-file --verify-diagnostics

#id = affine_map<(d0) -> (d0)>
megakernel.kernel @dim(%x: memref<8xf32> {megakernel.role = #megakernel.role<batch>},
                       %y: memref<8xi64> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<8xf32>) outs(%y : memref<8xi64>) sizes [8] {
      %e = tensor.empty() : tensor<8xi64>
      %r = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%e : tensor<8xi64>) {
      ^bb0(%out: i64):
        %i = linalg.index 0 : index
        // expected-error @below {{'tensor.dim' in the body of a linalg op is not supported}}
        %v = tensor.dim %a, %i : tensor<8xf32>
        %w = arith.index_cast %v : index to i64
        linalg.yield %w : i64
      } -> tensor<8xi64>
      megakernel.yield %r : tensor<8xi64>
    }
  }
  megakernel.return
}

// -----

#row = affine_map<(d0, d1) -> (d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
megakernel.kernel @sum_of_squares_in_the_combiner(%x: memref<4x8xf32> {megakernel.role = #megakernel.role<batch>},
                                                  %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x8xf32>) outs(%y : memref<4xf32>) sizes [4, 8] {
      %zero = arith.constant dense<0.0> : tensor<4xf32>
      // expected-error @below {{a reduction whose combiner is not a single associative op is not supported}}
      %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%a : tensor<4x8xf32>) outs(%zero : tensor<4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %q = arith.mulf %out, %out : f32
        %s = arith.addf %in, %q : f32
        linalg.yield %s : f32
      } -> tensor<4xf32>
      megakernel.yield %r : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
megakernel.kernel @writes_twice(%x: memref<4x8xf32> {megakernel.role = #megakernel.role<batch>},
                                %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    megakernel.tile ins(%a = %x : memref<4x8xf32>) outs(%y : memref<4xf32>) sizes [4] {
      %e = tensor.empty() : tensor<4xf32>
      // expected-error @below {{an op that neither is a reduction nor writes each element once is not supported here}}
      %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel"]}
          ins(%a : tensor<4x8xf32>) outs(%e : tensor<4xf32>) {
      ^bb0(%in: f32, %out: f32):
        linalg.yield %in : f32
      } -> tensor<4xf32>
      megakernel.yield %r : tensor<4xf32>
    }
  }
  megakernel.return
}
