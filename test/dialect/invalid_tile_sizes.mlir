// Where and how a tile op is cut, and what it may write: constraints T2 and T4.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

megakernel.kernel @zero(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                        %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error @below {{has 1 tile sizes, expected 1 positive ones, one per dimension of the domain (T2)}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%y : memref<4xf32>) sizes [0] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
megakernel.kernel @reduction_needs_two(%x: memref<4x4xf32> {megakernel.role = #megakernel.role<batch>},
                                       %i: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                                       %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error @below {{has 1 tile sizes, expected 2 positive ones, one per dimension of the domain (T2)}}
    megakernel.tile ins(%a = %x : memref<4x4xf32>, %b = %i : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
          ins(%a : tensor<4x4xf32>) outs(%b : tensor<4xf32>) {
      ^bb0(%in: f32, %out: f32):
        %s = arith.addf %in, %out : f32
        linalg.yield %s : f32
      } -> tensor<4xf32>
      megakernel.yield %r : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

megakernel.kernel @first_cta(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                             %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error @below {{has first_cta -1, expected none below 0 (T2)}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] first_cta -1 {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

megakernel.kernel @writes_state(%w: memref<2x2xf32> {megakernel.role = #megakernel.role<state>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  %view = memref.collapse_shape %w [[0, 1]] : memref<2x2xf32> into memref<4xf32>
  megakernel.phase {
    // expected-error @below {{writes argument 0 of the kernel as output 0, expected a buffer or an argument that is an output (T4)}}
    megakernel.tile ins(%a = %view : memref<4xf32>) outs(%view : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

megakernel.kernel @unranked(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error @below {{reads 'memref<*xf32>', expected a ranked memref}}
    megakernel.tile ins(%a = %b : memref<*xf32>) outs(%x : memref<4xf32>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
}
