// The constraints P1 of megakernel.phase and T1 to T4 of megakernel.tile.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

megakernel.kernel @phase() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  // expected-error @below {{holds an op other than 'megakernel.tile' (P1)}}
  megakernel.phase {
    // expected-note @below {{the op is 'arith.constant'}}
    %c = arith.constant 0 : i32
  }
  megakernel.return
}

// -----

!in = memref<4xf32>
megakernel.kernel @reads(%x: !in {megakernel.role = #megakernel.role<batch>},
                         %y: !in {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error @below {{reads 'memref<4xf32>' as 'tensor<5xf32>', expected a tensor of its shape and element type (T1)}}
    "megakernel.tile"(%x, %y) <{sizes = array<i64: 4>, operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%a: tensor<5xf32>):
      "megakernel.yield"(%a) : (tensor<5xf32>) -> ()
    }) : (!in, !in) -> ()
  }
  megakernel.return
}

// -----

megakernel.kernel @writes(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                          %y: memref<4xf64> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error @below {{writes 'tensor<4xf32>' to 'memref<4xf64>', expected a memref of its shape and element type (T1)}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%y : memref<4xf64>) sizes [4] {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

megakernel.kernel @yields(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                          %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error @below {{yields another number of values than it has outputs (T1)}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      megakernel.yield %a, %a : tensor<4xf32>, tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

megakernel.kernel @region(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                          %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // T3
    // expected-error @below {{holds an op that is not allowed in a fused region}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4] {
      // expected-note @below {{the op is 'arith.negf'}}
      %n = arith.negf %a : tensor<4xf32>
      megakernel.yield %n : tensor<4xf32>
    }
  }
  megakernel.return
}
