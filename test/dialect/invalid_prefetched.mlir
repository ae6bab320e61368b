// Which inputs may be read ahead of a barrier: constraint T5.
// RUN: tk-opt %s --split-input-file --verify-diagnostics

megakernel.kernel @no_such_input(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                                 %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error @below {{prefetches input 1, expected inputs from 0 to 0 in ascending order (T5)}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4]
        attributes {prefetched = array<i64: 0, 1>} {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}

// -----

megakernel.kernel @twice(%x: memref<4xf32> {megakernel.role = #megakernel.role<batch>},
                         %y: memref<4xf32> {megakernel.role = #megakernel.role<output>})
    attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
  megakernel.phase {
    // expected-error @below {{prefetches input 0, expected inputs from 0 to 0 in ascending order (T5)}}
    megakernel.tile ins(%a = %x : memref<4xf32>) outs(%y : memref<4xf32>) sizes [4]
        attributes {prefetched = array<i64: 0, 0>} {
      megakernel.yield %a : tensor<4xf32>
    }
  }
  megakernel.return
}
